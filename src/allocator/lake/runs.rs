//! Runs: free memory that is contiguous in the arena across borders of handles.
//!
//! A run begins with the last piece of a handle and ends with the first piece of a later one, and all handles between
//! are idle; they have one owner. It is known at both ends, so that runs part and join without looking at what lies
//! between. Only runs of two handles or more are kept; a piece by itself is listed as a piece.

use super::pool::{Handle, Pool, Run};
use crate::allocator::caching::FreeIndex;
use crate::allocator::{NIL, SlabIndex};

impl Pool {
    /// Takes a handle out of the runs that it is part of, before its free pieces change.
    #[inline]
    pub(super) fn part_runs(&mut self, handle: SlabIndex) {
        let Handle { run_from, left, right, .. } = self.handles[handle];
        if run_from != NIL {
            let run = self.forget_run(run_from);
            if run.last != handle {
                self.note_run(right, run.last);
            }
        }
        let run_to = self.handles[handle].run_to;
        if run_to != NIL {
            let run = self.forget_run(run_to);
            self.note_run(run.first, left);
        }
        if run_from == NIL && run_to == NIL && self.is_idle(handle) {
            let run = self.forget_run(self.run_around(handle));
            self.note_run(run.first, left);
            self.note_run(right, run.last);
        }
    }

    /// Takes neighbours out of the run that they are part of, and of those that end or begin in them, before their
    /// pieces change.
    pub(super) fn part_run(&mut self, first: SlabIndex, last: SlabIndex) {
        let (before, after) = (self.handles[first].run_to, self.handles[last].run_from);
        if before != NIL && !self.is_idle(first) {
            let run = self.forget_run(before);
            self.note_run(run.first, self.handles[first].left);
        }
        if after != NIL && !self.is_idle(last) {
            let run = self.forget_run(after);
            self.note_run(self.handles[last].right, run.last);
        }
        let mut run = self.handles[first].run_from;
        if run == NIL {
            run = self.handles[last].run_to;
        }
        if run == NIL {
            run = self.run_around(first);
        }
        let run = self.forget_run(run);
        if run.first != first {
            self.note_run(run.first, self.handles[first].left);
        }
        if run.last != last {
            self.note_run(self.handles[last].right, run.last);
        }
    }

    /// Joins the free ends of a row of neighbours with what is free beside it, after its pieces have changed. What is
    /// between the two must be idle.
    #[inline]
    pub(super) fn join_runs(&mut self, first: SlabIndex, last: SlabIndex) {
        let (mut begin, mut end) = (first, last);
        let left = self.handles[first].left;
        if self.is_open(left, first) {
            begin = match self.is_idle(left) {
                true => self.forget_run(self.handles[left].run_to).first,
                false => left,
            };
        }
        let right = self.handles[last].right;
        if self.is_open(last, right) {
            end = match self.is_idle(right) {
                true => self.forget_run(self.handles[right].run_from).last,
                false => right,
            };
        }
        if !self.is_idle(first) {
            self.note_run(begin, first);
            begin = first;
        }
        if !self.is_idle(last) {
            self.note_run(last, end);
            end = last;
        }
        self.note_run(begin, end);
    }

    /// Whether memory is free on both sides of the border between two neighbours, for the same owner.
    #[inline]
    pub(super) fn is_open(&self, left: SlabIndex, right: SlabIndex) -> bool {
        if left == NIL || right == NIL {
            return false;
        }
        let (left, right) = (&self.handles[left], &self.handles[right]);
        self.pieces[left.last].is_free
            && self.pieces[right.first].is_free
            && left.owner == right.owner
    }

    /// The run that has this handle inside. Its nearer end tells.
    fn run_around(&self, handle: SlabIndex) -> SlabIndex {
        let (mut left, mut right) = (handle, handle);
        loop {
            left = self.handles[left].left;
            right = self.handles[right].right;
            let (from, to) = (self.handles[left].run_from, self.handles[right].run_to);
            if from != NIL {
                return from;
            }
            if to != NIL {
                return to;
            }
        }
    }

    #[inline]
    fn forget_run(&mut self, run: SlabIndex) -> Run {
        let gone = self.runs[run];
        self.handles[gone.first].run_from = NIL;
        self.handles[gone.last].run_to = NIL;
        self.index_of(&gone).remove(gone.owner, gone.size, gone.at);
        self.runs.remove(run);
        gone
    }

    /// Lists the run from one handle to another, if there is one: a single handle must be idle.
    #[inline]
    fn note_run(&mut self, first: SlabIndex, last: SlabIndex) {
        if first == last && !self.is_idle(first) {
            return;
        }
        let begin = self.pieces[self.handles[first].last].at;
        let end = self.pieces[self.handles[last].first];
        let (at, size) = (begin.0, end.at.0 + end.size - begin.0);
        let owner = self.handles[first].owner;
        let is_pair =
            self.handles[first].right == last && !self.is_idle(first) && !self.is_idle(last);
        let noted = Run { first, last, at, size, owner, is_pair };
        let run = self.runs.insert(noted);
        self.handles[first].run_from = run;
        self.handles[last].run_to = run;
        self.index_of(&noted).insert(owner, size, at, run);
    }

    #[inline]
    fn index_of(&mut self, run: &Run) -> &mut FreeIndex {
        if run.is_pair { &mut self.pairs } else { &mut self.runs_by_size }
    }
}
