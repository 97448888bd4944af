//! Descriptors of cuDNN: a kind, attributes, and what they stand for once they are complete.

use std::ffi::c_int;

use crate::workspace::Asked;
use rustc_hash::FxHashMap;

/// What a plan computes.
#[derive(Debug, Clone)]
pub enum Plan {
    /// A convolution.
    Convolution(Asked),
    /// Several operations at a time: attention, in PyTorch; with the bytes of what it keeps between two of them.
    Fused(u64),
    /// Something else, which needs no workspace.
    Other,
}

/// A descriptor: its kind, and its attributes as they were set.
#[derive(Debug, Default, Clone)]
pub struct Descriptor {
    /// `cudnnBackendDescriptorType_t`
    pub kind: c_int,
    /// Values of the attributes that were set, by number, in bytes.
    pub attributes: FxHashMap<c_int, Vec<u8>>,
    /// What a graph, a configuration or a plan computes, once it is complete.
    pub computes: Option<Plan>,
}

impl Descriptor {
    /// An attribute that is a list of numbers of 64 bits.
    pub fn numbers(&self, name: c_int) -> Vec<i64> {
        let bytes = self.attributes.get(&name).map_or(&[][..], Vec::as_slice);
        bytes.as_chunks().0.iter().map(|chunk| i64::from_ne_bytes(*chunk)).collect()
    }

    /// An attribute that is a list of descriptors.
    pub fn handles(&self, name: c_int) -> Vec<u64> {
        self.numbers(name).into_iter().map(|number| number as u64).collect()
    }

    /// An attribute that is one of an enumeration.
    pub fn enumeration(&self, name: c_int) -> Option<c_int> {
        let bytes = self.attributes.get(&name)?.first_chunk()?;
        Some(c_int::from_ne_bytes(*bytes))
    }
}

/// All descriptors, by their handles.
pub type Descriptors = FxHashMap<u64, Descriptor>;
