//! Plans: what a cuDNN plan computes, read from the descriptors that it rests on: each has a kind, attributes, and what
//! it stands for once it is complete.

use std::ffi::c_int;

use crate::workspace::{Asked, Convolution, Direction};

use crate::exports::tensors;
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

/// Attributes of descriptors, by which they point to each other.
const PLAN_CONFIGURATION: i32 = 401;
const GRAPH_OPERATIONS: i32 = 801;

/// Attributes of tensors, and of convolutions.
const TENSOR_TYPE: i32 = 901;
const TENSOR_SIZES: i32 = 902;
const TENSOR_STRIDES: i32 = 903;
const DILATIONS: i32 = 102;
const STRIDES: i32 = 103;
const PADDINGS: [i32; 2] = [104, 105];

/// Where an operation keeps its convolution, weight, input and output.
struct Places {
    direction: Direction,
    convolution: i32,
    weight: i32,
    input: i32,
    output: i32,
}

/// The operations that are convolutions, by the kind of their descriptors.
fn places(kind: i32) -> Option<Places> {
    let (direction, [convolution, weight, input, output]) = match kind {
        10 => (Direction::Forward, [702, 703, 704, 705]),
        11 => (Direction::Weight, [714, 715, 716, 717]),
        12 => (Direction::Data, [708, 709, 710, 711]),
        _ => return None,
    };
    Some(Places { direction, convolution, weight, input, output })
}

/// `cudnnBackendDescriptorType_t`
const KIND_PLAN: i32 = 5;
const KIND_GRAPH: i32 = 15;
const KIND_REDUCTION: i32 = 22;
/// Attention forwards as one operation: so it comes without a mask.
const KIND_ATTENTION: i32 = 41;
const KIND_PRODUCT: i32 = 19;
/// Where a product keeps the first of its factors.
const FIRST_FACTOR: i32 = 1520;
/// Where a reduction keeps its input and its output.
const REDUCTION: [i32; 2] = [1610, 1611];

impl Plan {
    /// What a descriptor computes that is complete now: a graph by its operations, a plan by its configuration.
    ///
    /// The program may destroy what it rests on from here on.
    pub fn of(handle: u64, all: &Descriptors) -> Option<Self> {
        let found = all.get(&handle)?;
        match found.kind {
            KIND_GRAPH => Some(Self::of_operations(&found.handles(GRAPH_OPERATIONS), all)),
            KIND_PLAN => {
                let configuration = all.get(found.handles(PLAN_CONFIGURATION).first()?)?;
                configuration.computes.clone()
            }
            _ => None,
        }
    }

    fn of_operations(operations: &[u64], all: &Descriptors) -> Self {
        match operations {
            [one] if all.get(one).is_some_and(|found| found.kind == KIND_ATTENTION) => {
                Self::Fused(0)
            }
            [one] => convolution(*one, all).map_or(Self::Other, Self::Convolution),
            [] => Self::Other,
            _ if is_of_one_query(operations, all) => Self::Other,
            _ => Self::Fused(operations.iter().map(|&one| whole_heads(one, all)).sum()),
        }
    }
}

/// Whether this is attention of a single query with a mask, forwards, which needs no workspace: the first of its two
/// products is that of the query with the keys. Backwards there are five.
fn is_of_one_query(operations: &[u64], all: &Descriptors) -> bool {
    let operations = operations.iter().filter_map(|one| all.get(one));
    let products: Vec<_> = operations.filter(|it| it.kind == KIND_PRODUCT).collect();
    let [first, _] = products.as_slice() else { return false };
    let query = first.handles(FIRST_FACTOR).first().and_then(|query| all.get(query));
    query.map(sizes).is_some_and(|sizes| matches!(sizes.as_slice(), [_, _, 1, _]))
}

/// Bytes of a tensor that is summed over heads at the end of a backward pass: where several heads share their keys and
/// values, the gradients are made for each head first, in the workspace.
///
/// On an H100, with 32 heads over 8 and 16,384 to 24,576 tokens, a plan asked for just these two tensors more.
fn whole_heads(operation: u64, all: &Descriptors) -> u64 {
    let whole = || {
        let operation = all.get(&operation).filter(|found| found.kind == KIND_REDUCTION)?;
        let part = |place| all.get(operation.handles(place).first()?);
        let (from, to) = (part(REDUCTION[0])?, part(REDUCTION[1])?);
        let (before, after) = (sizes(from), sizes(to));
        let is_over_heads = before.len() == 4 && before.get(1) > after.get(1);
        is_over_heads.then(|| before.iter().product::<u64>() * element(from))
    };
    whole().unwrap_or(0)
}

fn convolution(operation: u64, all: &Descriptors) -> Option<Asked> {
    let operation = all.get(&operation)?;
    let places = places(operation.kind)?;
    let part = |place| all.get(operation.handles(place).first()?);
    let (input, weight, output) = (part(places.input)?, part(places.weight)?, part(places.output)?);
    let what = part(places.convolution)?;
    let is_zero = |place: &i32| what.numbers(*place).iter().all(|&padding| padding == 0);
    let plain =
        what.numbers(STRIDES).iter().all(|&stride| stride == 1) && PADDINGS.iter().all(is_zero);
    let convolution = Convolution {
        direction: places.direction,
        element: element(input),
        is_float16: input.enumeration(TENSOR_TYPE) == Some(FLOAT16),
        channels_last: channels_last(input),
        input: sizes(input),
        weight: sizes(weight),
        output: sizes(output),
        plain,
        dilation: what.numbers(DILATIONS).first().map_or(1, |&taps| taps.max(1) as u64),
    };
    let [stride, padding, dilation] =
        [STRIDES, PADDINGS[0], DILATIONS].map(|of| unsigned(&what.numbers(of)));
    Some(Asked { convolution, stride, padding, dilation })
}

fn sizes(tensor: &Descriptor) -> Vec<u64> {
    unsigned(&tensor.numbers(TENSOR_SIZES))
}

fn unsigned(numbers: &[i64]) -> Vec<u64> {
    numbers.iter().map(|&number| number.max(0) as u64).collect()
}

/// Whether channels lie next to each other; with one channel that cannot be known, and makes no difference.
fn channels_last(tensor: &Descriptor) -> bool {
    let (sizes, strides) = (tensor.numbers(TENSOR_SIZES), tensor.numbers(TENSOR_STRIDES));
    strides.get(1) == Some(&1) && sizes.get(1).is_some_and(|&channels| channels > 1)
}

/// CUDNN_DATA_HALF
const FLOAT16: c_int = 2;

/// Bytes of an element.
fn element(tensor: &Descriptor) -> u64 {
    tensor.enumeration(TENSOR_TYPE).map_or(4, tensors::element)
}

/// Multiplications and additions of a convolution, in whichever direction.
pub fn flops(convolution: &Convolution) -> f64 {
    let count = |sizes: &[u64]| sizes.iter().product::<u64>() as f64;
    let per_result = convolution.weight.get(1..).map_or(1.0, count);
    2.0 * count(&convolution.output) * per_result
}
