//! Recurrent layers: what cuDNN keeps for the way back, and its workspace.
//!
//! What is kept has a closed form: gates and states of every step and layer, the output of every layer but the last,
//! and one bit for each value that may be dropped.

/// Kinds of recurrent layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// `nn.RNN`
    Plain,
    /// `nn.LSTM`
    Lstm,
    /// `nn.GRU`
    Gru,
}

impl Cell {
    /// Matrices of a layer, and values kept for the way back for each hidden one.
    fn counts(self) -> (u64, u64) {
        match self {
            Self::Plain => (1, 1),
            Self::Lstm => (4, 5),
            Self::Gru => (3, 6),
        }
    }
}

/// A recurrent network as cuDNN gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recurrent {
    /// Its cells.
    pub cell: Cell,
    /// Layers above each other.
    pub layers: u64,
    /// Whether it also runs backwards in time.
    pub both_ways: bool,
    /// Features of the input.
    pub input: u64,
    /// Hidden features.
    pub hidden: u64,
    /// Features of the output: those of the projection, else the hidden ones.
    pub output: u64,
    /// Steps of all sequences together.
    pub tokens: u64,
    /// Sequences.
    pub batch: u64,
    /// Steps of the longest sequence.
    pub steps: u64,
    /// Whether sequences lie in memory without padding, as cuDNN computes them.
    pub packed: bool,
    /// Whether values are dropped between layers.
    pub dropout: bool,
    /// Bytes of an element.
    pub element: u64,
}

/// One matrix or bias of a layer, among the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Bytes before it.
    pub offset: u64,
    /// Its rows.
    pub rows: u64,
    /// Its columns; 1 for a bias.
    pub columns: u64,
}

impl Recurrent {
    fn ways(&self) -> u64 {
        1 + u64::from(self.both_ways)
    }

    /// Bytes that all weights and biases take. Exact.
    pub fn weights(&self) -> u64 {
        let (gates, _) = self.cell.counts();
        let projection = if self.output == self.hidden { 0 } else { self.output * self.hidden };
        let layer = |below| gates * self.hidden * (below + self.output + 2) + projection;
        let upper = self.layers.saturating_sub(1) * layer(self.output * self.ways());
        self.ways() * (layer(self.input) + upper) * self.element
    }

    /// Features that a layer reads. Each way counts as a layer of its own, here and below.
    fn below(&self, layer: u64) -> u64 {
        if layer < self.ways() { self.input } else { self.output * self.ways() }
    }

    /// Elements of all matrices of the layers before this one.
    fn matrices_before(&self, layer: u64) -> u64 {
        let (gates, _) = self.cell.counts();
        let projection = if self.output == self.hidden { 0 } else { self.output * self.hidden };
        let of = |layer| gates * self.hidden * (self.below(layer) + self.output) + projection;
        (0..layer).map(of).sum()
    }

    /// A matrix of a layer: first one of each gate for what it reads, then one of each for the state before, then the
    /// projection, if there is one.
    pub fn matrix(&self, layer: u64, which: u64) -> Option<Part> {
        let (gates, _) = self.cell.counts();
        let (below, hidden, output) = (self.below(layer), self.hidden, self.output);
        let (before, rows, columns) = if which < gates {
            (which * hidden * below, hidden, below)
        } else if which < 2 * gates {
            (hidden * (gates * below + (which - gates) * output), hidden, output)
        } else if which == 2 * gates && output != hidden {
            (gates * hidden * (below + output), output, hidden)
        } else {
            return None;
        };
        let offset = (self.matrices_before(layer) + before) * self.element;
        (layer < self.layers * self.ways()).then_some(Part { offset, rows, columns })
    }

    /// A bias of a layer, in the order of the matrices. All biases lie behind all matrices.
    pub fn bias(&self, layer: u64, which: u64) -> Option<Part> {
        let (gates, _) = self.cell.counts();
        let (all, rows) = (self.layers * self.ways(), self.hidden);
        let before = self.matrices_before(all) + (layer * 2 * gates + which) * rows;
        let is_one = layer < all && which < 2 * gates;
        is_one.then_some(Part { offset: before * self.element, rows, columns: 1 })
    }

    /// Bytes kept from the way forwards to the way back. Exact for all 117 that were measured. What may be dropped has
    /// its bits also for steps that sequences do not have: so it was in six recorded calls.
    pub fn reserve(&self) -> u64 {
        let (_, kept) = self.cell.counts();
        let between = self.layers.saturating_sub(1);
        let values = self.tokens * self.hidden * self.ways() * self.element;
        let projection = if self.output == self.hidden { 0 } else { values * self.layers * 3 / 2 };
        let steps = self.steps * self.batch;
        let dropped = steps * self.output * self.ways() * self.ways() / 8 * between;
        let dropped = if self.dropout { dropped } else { 0 };
        (values * (kept * self.layers + between) + projection + dropped + 256).next_multiple_of(32)
    }

    /// Bytes of workspace: weights and 8 MiB for each layer, values of each step, states, and packed copies of what is
    /// padded. An estimate, chosen on the answers of `examples/predict/recurrent.py` with another seed. Of 1,133 random
    /// networks drawn after that, half are within 11 % and nine in ten within 51 %: LSTM that run both ways are mostly
    /// exact, those that run one way within 8 to 12 %, and inputs wider than the hidden features are the worst.
    pub fn workspace(&self) -> u64 {
        let step = self.hidden * self.ways() * self.element;
        let states = match self.cell {
            Cell::Lstm => 8,
            Cell::Gru => 5,
            Cell::Plain => 4,
        };
        let (copied_states, copies) = match self.packed {
            true => (0, 0),
            false => (4, self.tokens * (step + self.input * self.element)),
        };
        let buffers = (8 << 20) * self.ways() * self.layers;
        let values = step * self.tokens * self.tenths_of_a_step() / 10;
        let states = (states + copied_states) * step * self.batch * self.layers;
        self.weights() + buffers + values + states + copies
    }

    /// Values in the workspace for each hidden one of a step, in tenths.
    fn tenths_of_a_step(&self) -> u64 {
        let (is_long, is_deep) = (self.steps >= LONG, self.layers > 1);
        let dropped = if self.dropout && is_deep { 10 } else { 0 };
        match (self.cell, self.both_ways) {
            (Cell::Lstm, true) => 60,
            (Cell::Gru, true) => 50,
            (Cell::Plain, true) => 30,
            (_, false) if is_long && is_deep && self.packed => 12 + dropped,
            (_, false) if is_long && is_deep => 23,
            (Cell::Lstm, false) if !is_long => 40 + dropped,
            (Cell::Gru, false) if is_deep => 30 + dropped,
            (Cell::Plain, false) => 20 + dropped,
            (_, false) => 35,
        }
    }
}

/// Steps from which on a network that runs one way keeps fewer values: between 300 and 428 in what was measured.
const LONG: u64 = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn lstm(layers: u64, input: u64, hidden: u64, batch: u64, steps: u64) -> Recurrent {
        Recurrent {
            cell: Cell::Lstm,
            layers,
            both_ways: false,
            input,
            hidden,
            output: hidden,
            tokens: batch * steps,
            batch,
            steps,
            packed: false,
            dropout: false,
            element: 4,
        }
    }

    #[test]
    fn recurrent_layers_reserve_what_was_measured() {
        let small = lstm(1, 32, 64, 4, 10);
        assert_eq!((small.weights(), small.reserve()), (100_352, 51_456));
        let two = lstm(2, 256, 512, 16, 100);
        assert_eq!(two.reserve(), 36_045_056);
        assert_eq!(Recurrent { dropout: true, ..two }.reserve(), 36_147_456);
        let projected = Recurrent { output: 256, dropout: true, ..two };
        assert_eq!(projected.reserve(), 45_926_656);
        let both = Recurrent { both_ways: true, ..lstm(2, 128, 128, 8, 30) };
        assert_eq!(Recurrent { dropout: true, ..both }.reserve(), 2_718_976);
        assert_eq!(Recurrent { cell: Cell::Gru, ..both }.reserve(), 3_195_136);
        let packed = Recurrent { tokens: 160, ..lstm(2, 64, 128, 8, 40) };
        assert_eq!((packed.weights(), packed.reserve()), (925_696, 901_376));
        let ragged = Recurrent { dropout: true, packed: true, ..lstm(3, 1536, 1024, 21, 865) };
        assert_eq!(Recurrent { tokens: 12_866, ..ragged }.reserve(), 900_535_808);
        let half = Recurrent { element: 2, ..lstm(2, 650, 650, 20, 35) };
        assert_eq!(half.reserve(), 10_010_272);
    }

    #[test]
    fn matrices_and_biases_lie_one_after_the_other() {
        let both = Recurrent { both_ways: true, output: 32, ..lstm(2, 96, 64, 4, 10) };
        let plain = Recurrent { cell: Cell::Plain, ..lstm(3, 7, 5, 1, 1) };
        for network in [both, plain, lstm(1, 32, 64, 4, 10)] {
            let layers = network.layers * network.ways();
            let of = |part: fn(&Recurrent, u64, u64) -> Option<Part>| {
                let parts =
                    move |layer| (0..9).filter_map(move |which| part(&network, layer, which));
                (0..layers).flat_map(parts).collect::<Vec<_>>()
            };
            let mut end = 0;
            for part in [of(Recurrent::matrix), of(Recurrent::bias)].concat() {
                assert_eq!(part.offset, end, "{part:?}");
                end += part.rows * part.columns * network.element;
            }
            assert_eq!(end, network.weights());
            assert_eq!((network.matrix(layers, 0), network.bias(layers, 0)), (None, None));
        }
    }

    fn half(network: Recurrent) -> Recurrent {
        Recurrent { element: 2, ..network }
    }

    #[test]
    fn recurrent_workspaces_are_near_the_measured() {
        let measured = [
            (lstm(1, 32, 64, 4, 10), 8_715_552.0),
            (lstm(2, 256, 512, 16, 100), 50_135_424.0),
            (lstm(3, 1024, 1024, 32, 20), 145_883_648.0),
            (half(lstm(1, 256, 512, 32, 2000)), 339_575_296.0),
            (half(lstm(5, 256, 512, 32, 100)), 81_527_296.0),
            (Recurrent { packed: true, ..half(lstm(5, 256, 512, 32, 100)) }, 75_956_480.0),
            (Recurrent { both_ways: true, ..half(lstm(5, 256, 512, 32, 2000)) }, 1_094_713_856.0),
        ];
        for (network, bytes) in measured {
            let off = network.workspace() as f64 / bytes - 1.0;
            assert!(off.abs() < 0.02, "{network:?}: {off}");
        }
    }
}
