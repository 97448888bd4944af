//! CUDA graphs: what is captured on which stream, and what a graph does when it is launched.
//!
//! While a stream is captured, nothing that is queued on it is done. Copies are kept and done at each launch; kernels
//! are only counted. Another stream joins a capture when it waits for an event that was recorded inside it:
//!
//! ```text
//!   begin(A)   A ─ kernel ─ copy ─ record e ──────── wait f ─ end(A) ──▶ graph: 3 nodes, 1 copy
//!              B              wait e ─ kernel ─ record f
//! ```

use rustc_hash::{FxHashMap, FxHashSet};

/// A copy between addresses, kept until the graph is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptCopy {
    /// Where it goes.
    pub to: u64,
    /// Where it comes from.
    pub from: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What a capture has seen.
#[derive(Debug, Default, Clone)]
pub struct Capture {
    /// A number that no other capture has; never zero.
    pub id: u64,
    /// Kernels, copies and the like.
    pub nodes: u64,
    /// The copies among them.
    pub copies: Vec<KeptCopy>,
    origin: u64,
    streams: FxHashSet<u64>,
    events: FxHashSet<u64>,
}

/// The captures under way, and the graphs that they became.
#[derive(Debug, Default)]
pub struct Graphs {
    captures: Vec<Capture>,
    graphs: FxHashMap<u64, Capture>,
    executable: FxHashMap<u64, Capture>,
    last_id: u64,
}

impl Graphs {
    /// `cudaStreamBeginCapture`; false if the stream is captured already.
    pub fn begin(&mut self, stream: u64) -> bool {
        if self.of(stream).is_some() {
            return false;
        }
        self.last_id += 1;
        let mut capture = Capture { id: self.last_id, origin: stream, ..Capture::default() };
        capture.streams.insert(stream);
        self.captures.push(capture);
        true
    }

    /// `cudaStreamEndCapture`: the graph goes by the name `graph`. False if no capture began on this stream.
    pub fn end(&mut self, stream: u64, graph: u64) -> bool {
        let found = self.captures.iter().position(|capture| capture.origin == stream);
        let Some(index) = found else { return false };
        let capture = self.captures.swap_remove(index);
        self.graphs.insert(graph, capture);
        true
    }

    /// The capture that a stream is part of.
    pub fn of(&mut self, stream: u64) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|capture| capture.streams.contains(&stream))
    }

    /// Whether anything is captured.
    pub fn is_capturing(&self) -> bool {
        !self.captures.is_empty()
    }

    /// `cudaEventRecord`: whether this belongs to a capture.
    pub fn record(&mut self, event: u64, stream: u64) -> bool {
        for capture in &mut self.captures {
            capture.events.remove(&event);
        }
        let Some(capture) = self.of(stream) else { return false };
        capture.events.insert(event);
        true
    }

    /// `cudaStreamWaitEvent`: whether this belongs to a capture, which the stream then joins.
    pub fn wait(&mut self, stream: u64, event: u64) -> bool {
        let found = self.captures.iter_mut().find(|capture| capture.events.contains(&event));
        let Some(capture) = found else { return self.of(stream).is_some() };
        capture.streams.insert(stream);
        true
    }

    /// A graph, or an executable one, by its name.
    pub fn get(&self, graph: u64) -> Option<&Capture> {
        self.graphs.get(&graph).or_else(|| self.executable.get(&graph))
    }

    /// `cudaGraphInstantiate`: an executable graph that does what `graph` does.
    pub fn instantiate(&mut self, graph: u64, executable: u64) {
        if let Some(capture) = self.graphs.get(&graph).cloned() {
            self.executable.insert(executable, capture);
        }
    }

    /// Executable graphs that exist, and their nodes.
    pub fn live(&self) -> (u64, u64) {
        let nodes = self.executable.values().map(|graph| graph.nodes).sum();
        (self.executable.len() as u64, nodes)
    }

    /// `cudaGraphDestroy`, `cudaGraphExecDestroy`
    pub fn destroy(&mut self, graph: u64) {
        self.graphs.remove(&graph);
        self.executable.remove(&graph);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_joins_by_waiting_and_leaves_with_the_end() {
        let mut graphs = Graphs::default();
        assert!(graphs.begin(1) && !graphs.begin(1));
        assert!(graphs.of(2).is_none() && graphs.record(7, 1) && graphs.wait(2, 7));
        let capture = graphs.of(2).unwrap();
        capture.nodes += 1;
        capture.copies.push(KeptCopy { to: 1, from: 2, bytes: 3 });
        assert!(!graphs.end(2, 50) && graphs.end(1, 50) && !graphs.is_capturing());
        assert!(graphs.of(1).is_none() && graphs.of(2).is_none());
        graphs.instantiate(50, 51);
        graphs.destroy(50);
        assert_eq!(graphs.live(), (1, 1));
        assert_eq!((graphs.get(51).unwrap().nodes, graphs.get(51).unwrap().copies.len()), (1, 1));
        assert!(graphs.get(50).is_none());
        graphs.destroy(51);
        assert_eq!(graphs.live(), (0, 0));
    }

    #[test]
    fn captures_have_numbers_of_their_own() {
        let mut graphs = Graphs::default();
        assert!(graphs.begin(1) && graphs.begin(2));
        let first = graphs.of(1).unwrap().id;
        assert_ne!(first, graphs.of(2).unwrap().id);
        assert!(!graphs.record(9, 3) && !graphs.wait(3, 9), "stream 3 is not captured");
    }
}
