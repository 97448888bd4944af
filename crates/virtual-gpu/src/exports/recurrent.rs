//! Recurrent layers of cuDNN: sizes of their weights, of what is kept for the way back, and of their workspace.
//!
//! PyTorch lays the weights out as cuDNN says: it asks where each matrix and bias lies, and makes its parameters views
//! of one buffer.

use std::ffi::{c_float, c_int, c_void};

use crate::workspace::{Cell, DROPOUT_STATES, Guess, Pairs, Part, Question, Recurrent, Subject};
use crate::{ALIGNED, Precision, Work};

use crate::exports::dnn;
use crate::exports::objects::Objects;
use crate::exports::state::{self, list, number, pointer, put};
use crate::exports::tensors::{BAD_PARAMETER, SUCCESS, Status, TENSORS, Tensor, element};

/// A network as it was described. Its tokens and batch are not known before data is.
#[derive(Clone)]
struct Network {
    network: Recurrent,
    kind: c_int,
    /// All that was said of it, as arguments of its line.
    described: String,
    /// The line by which its workspace was asked for last.
    asked: Option<String>,
}

static NETWORKS: Objects<Network> = Objects::new();
static DATA: Objects<Sequences> = Objects::new();
/// Which share of values a dropout drops.
static DROPOUTS: Objects<c_float> = Objects::new();

/// What a network runs on.
#[derive(Clone, Copy)]
struct Sequences {
    count: u64,
    /// Steps of the longest one, and of all together.
    longest: u64,
    tokens: u64,
    is_packed: bool,
}

/// `cudnnRNNDataLayout_t`: `CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED`
const PACKED: c_int = 1;

fn size(number: c_int) -> u64 {
    number.max(0) as u64
}

/// A network that runs on data.
fn running(network: *mut c_void, data: *mut c_void) -> Option<Recurrent> {
    let (Network { network, .. }, data) = (NETWORKS.get(network)?, DATA.get(data)?);
    let Sequences { count: batch, longest: steps, tokens, is_packed: packed } = data;
    Some(Recurrent { tokens, batch, steps, packed, ..network })
}

/// Bytes of the workspace of a network that runs on data; its line is kept.
fn ask(of: *mut c_void, network: &Recurrent, is_training: c_int) -> u64 {
    let Recurrent { packed, steps, batch, tokens, .. } = *network;
    let runs = [
        ("layout", packed.into()),
        ("training", is_training.into()),
        ("steps", steps as i64),
        ("batch", batch as i64),
        ("tokens", tokens as i64),
    ];
    let described = NETWORKS.get(of).map_or_else(String::new, |found| found.described);
    let line = Question::Recurrent.line(format_args!("{described} {}", Pairs(&runs)));
    NETWORKS.change(of, |found| found.asked = Some(line.clone()));
    let bytes = network.workspace();
    let (ends, chances) = network.spread(bytes);
    let guess = Guess { what: "recurrent layers", bytes, ends, chances };
    state::workspace(Subject::Line(line), guess)
}

fn described(part: Part, kind: c_int) -> Tensor {
    let (rows, columns) = (part.rows as c_int, part.columns as c_int);
    Tensor {
        kind,
        format: 0,
        sizes: vec![1, rows, columns],
        strides: vec![rows * columns, columns, 1],
    }
}

/// A way through a network, forwards or backwards: each weight is multiplied with each token.
fn run(handle: *mut c_void, of: *mut c_void, data: *mut c_void) -> Status {
    let Some(network) = running(of, data) else { return BAD_PARAMETER };
    let asked = NETWORKS.get(of).and_then(|found| found.asked).unwrap_or_default();
    state::ran(|| Subject::Line(asked));
    let products = network.tokens as f64 * (network.weights() / network.element) as f64;
    let results = (network.tokens * network.output) as f64;
    let precision = if network.element == 2 { Precision::Half } else { Precision::Tensor32 };
    let stream = dnn::stream_of(handle);
    state::work(
        stream,
        Work::Product { flops: 2.0 * products, results, precision, alignment: ALIGNED },
    );
    SUCCESS
}

skins! {
    cudnnSetRNNDescriptor_v8(
        of: *mut c_void, algorithm: c_int, mode: c_int, bias: c_int, direction: c_int,
        input_mode: c_int, kind: c_int, precision: c_int, math: c_int, input: c_int, hidden: c_int,
        output: c_int, layers: c_int, dropout: *mut c_void, flags: u32
    ) = {
        let cell = match mode {
            0 | 1 => Cell::Plain,
            2 => Cell::Lstm,
            3 => Cell::Gru,
            _ => return BAD_PARAMETER,
        };
        let network = Recurrent {
            cell,
            layers: size(layers),
            both_ways: direction == 1,
            input: size(input),
            hidden: size(hidden),
            output: size(output),
            tokens: 0,
            batch: 0,
            steps: 0,
            packed: false,
            dropout: DROPOUTS.get(dropout).is_some_and(|share| share > 0.0),
            element: element(kind),
        };
        let settings = [
            ("algorithm", algorithm),
            ("mode", mode),
            ("bias", bias),
            ("direction", direction),
            ("input_mode", input_mode),
            ("type", kind),
            ("precision", precision),
            ("math", math),
            ("input", input),
            ("hidden", hidden),
            ("output", output),
            ("layers", layers),
            ("dropout", network.dropout.into()),
            ("flags", flags as c_int),
        ];
        let described = Pairs(&settings.map(|(name, value)| (name, value.into()))).to_string();
        NETWORKS.set(of, Network { network, kind, described, asked: None });
        SUCCESS
    };
    /// Sequences may be shorter than the longest: what they have together counts.
    cudnnSetRNNDataDescriptor(
        of: *mut c_void, _kind: c_int, layout: c_int, steps: c_int, batch: c_int, _features: c_int,
        lengths: *const c_int, _padding: *const c_void
    ) = {
        let mut tokens = size(steps) * size(batch);
        if !lengths.is_null() {
            tokens = list(lengths, batch).iter().map(|&length| size(length)).sum();
        }
        let (count, longest, is_packed) = (size(batch), size(steps), layout == PACKED);
        DATA.set(of, Sequences { count, longest, tokens, is_packed });
        SUCCESS
    };
    /// PyTorch asks with null in place of what it does not want to know.
    cudnnGetRNNTempSpaceSizes(
        _handle: *mut c_void, of: *mut c_void, is_training: c_int, data: *mut c_void,
        workspace: *mut usize, reserve: *mut usize
    ) = {
        let Some(network) = running(of, data) else { return BAD_PARAMETER };
        let bytes = if workspace.is_null() { 0 } else { ask(of, &network, is_training) };
        for (to, bytes) in [(workspace, bytes), (reserve, network.reserve())] {
            if !to.is_null() {
                to.write(bytes as usize);
            }
        }
        SUCCESS
    };
    /// Where a matrix and a bias of a layer lie; each way counts as a layer. Null in place of one that is not wanted.
    cudnnGetRNNWeightParams(
        _handle: *mut c_void, network: *mut c_void, layer: c_int, _bytes: usize,
        weights: *const c_void, which: c_int, matrix: *mut c_void, matrix_at: *mut *mut c_void,
        bias: *mut c_void, bias_at: *mut *mut c_void
    ) = {
        let Some(found) = NETWORKS.get(network) else { return BAD_PARAMETER };
        let Network { network, kind, .. } = found;
        let (layer, which) = (size(layer), size(which));
        let wanted = [
            (matrix, matrix_at, network.matrix(layer, which)),
            (bias, bias_at, network.bias(layer, which)),
        ];
        for (tensor, to, part) in wanted {
            if !to.is_null() {
                let at = part.map_or(0, |part| number(weights) + part.offset);
                TENSORS.set(tensor, part.map(|part| described(part, kind)).unwrap_or_default());
                to.write(pointer(at));
            }
        }
        SUCCESS
    };
    cudnnGetRNNWeightSpaceSize(_handle: *mut c_void, network: *mut c_void, to: *mut usize) =
        NETWORKS.get(network).map_or(BAD_PARAMETER, |it| put(to, it.network.weights() as usize));
    cudnnSetDropoutDescriptor(
        of: *mut c_void, _handle: *mut c_void, share: c_float, _states: *mut c_void,
        _bytes: usize, _seed: u64
    ) = { DROPOUTS.set(of, share); SUCCESS };
    cudnnRestoreDropoutDescriptor(
        of: *mut c_void, handle: *mut c_void, share: c_float, states: *mut c_void, bytes: usize,
        seed: u64
    ) = cudnnSetDropoutDescriptor(of, handle, share, states, bytes, seed);
    cudnnDestroyDropoutDescriptor(of: *mut c_void) = { DROPOUTS.forget(of); SUCCESS };
    cudnnDropoutGetStatesSize(_handle: *mut c_void, to: *mut usize) =
        put(to, DROPOUT_STATES as usize);
    cudnnDestroyRNNDescriptor(of: *mut c_void) = { NETWORKS.forget(of); SUCCESS };
    cudnnDestroyRNNDataDescriptor(of: *mut c_void) = { DATA.forget(of); SUCCESS };
    cudnnRNNForward(
        handle: *mut c_void, network: *mut c_void, _mode: c_int, _lengths: *const c_int,
        x: *mut c_void
    ) = run(handle, network, x);
    cudnnRNNBackwardData_v8(
        handle: *mut c_void, network: *mut c_void, _lengths: *const c_int, y: *mut c_void
    ) = run(handle, network, y);
    cudnnRNNBackwardWeights_v8(
        handle: *mut c_void, network: *mut c_void, _add: c_int, _lengths: *const c_int,
        x: *mut c_void
    ) = run(handle, network, x);
}
