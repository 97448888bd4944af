//! Tensors of cuDNN's older interface: their types and sizes, and the workspaces of CTC loss and batch normalization.
//!
//! PyTorch also reads tensors back: cuDNN describes to it each matrix of a recurrent layer (`recurrent.rs`).

use std::ffi::{c_int, c_void};

use crate::workspace::{self, Guess, Pairs, Question, Subject, joined};

use crate::exports::objects::Objects;
use crate::exports::state::{self, list, put};

/// `cudnnStatus_t`
pub type Status = c_int;
pub const SUCCESS: Status = 0;
pub const BAD_PARAMETER: Status = 2000;

/// Element type (`cudnnDataType_t`), sizes, and strides; a filter has none of these, but a format.
#[derive(Debug, Clone, Default)]
pub struct Tensor {
    pub kind: c_int,
    pub format: c_int,
    pub sizes: Vec<c_int>,
    pub strides: Vec<c_int>,
}

/// All tensors and filters.
pub static TENSORS: Objects<Tensor> = Objects::new();

/// Bytes of an element of a `cudnnDataType_t`.
pub fn element(kind: c_int) -> u64 {
    match kind {
        2 | 9 => 2,
        1 | 10 => 8,
        3 | 8 | 11.. => 1,
        _ => 4,
    }
}

/// # Safety
/// `to` has room for `room` numbers.
unsafe fn put_list(to: *mut c_int, room: c_int, list: &[c_int]) {
    let count = list.len().min(room.max(0) as usize);
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), to, count) };
}

/// Bytes of a workspace that is used at once, by a rule.
fn ask(what: &'static str, line: String, bytes: u64, ends: (u64, u64)) -> usize {
    let guess = Guess { what, bytes, ends, chances: (25, 25) };
    let subject = Subject::Line(line);
    let bytes = state::workspace(subject.clone(), guess);
    state::ran(|| subject);
    bytes as usize
}

/// The workspace of a CTC loss, from its probabilities: steps, sequences, alphabet. `labels` are the lengths of the
/// sequences of labels, where the function that asks is told.
fn ctc_workspace(probabilities: *mut c_void, algorithm: c_int, labels: Option<&[c_int]>) -> usize {
    let sizes = TENSORS.get(probabilities).unwrap_or_default().sizes;
    let [steps, batch, alphabet] = *sizes.as_slice() else { return 0 };
    let (longest, all) = labels.map_or((-1, -1), |labels| {
        let labels = labels.iter().map(|&length| i64::from(length));
        (labels.clone().max().unwrap_or(0), labels.sum())
    });
    let arguments = [
        ("steps", steps.into()),
        ("batch", batch.into()),
        ("alphabet", alphabet.into()),
        ("algorithm", algorithm.into()),
        ("longest", longest),
        ("labels", all),
    ];
    let [steps, batch, alphabet] = [steps, batch, alphabet].map(|size| size.max(0) as u64);
    let line = Question::CtcLoss.line(Pairs(&arguments));
    let longest = u64::try_from(longest).ok();
    let bytes = workspace::ctc_loss(steps, batch, alphabet, longest);
    ask("CTC losses", line, bytes, (bytes, bytes))
}

/// PyTorch chooses this `cudnnBatchNormMode_t` where channels are last; all others need no workspace.
const CHANNELS_LAST: c_int = 2;

/// The workspace of a batch normalization of a tensor, or what it keeps for the way back: nothing.
fn batch_norm(mode: c_int, what: &str, of: *mut c_void) -> usize {
    let Some(Tensor { kind, sizes, .. }) = TENSORS.get(of) else { return 0 };
    if mode != CHANNELS_LAST {
        return 0;
    }
    let line =
        Question::BatchNorm.line(format_args!("what={what} type={kind} sizes={}", joined(&sizes)));
    let tensor = sizes.iter().map(|&size| size.max(0) as u64).product::<u64>() * element(kind);
    let (bytes, ends) = match what {
        "kept" => (0, (0, 0)),
        _ => workspace::batch_norm(what == "forward", tensor),
    };
    ask("batch normalizations", line, bytes, ends)
}

skins! {
    cudnnGetTensorNdDescriptor(
        of: *mut c_void, room: c_int, kind: *mut c_int, count: *mut c_int, sizes: *mut c_int,
        strides: *mut c_int
    ) = {
        let Some(tensor) = TENSORS.get(of) else { return BAD_PARAMETER };
        put_list(sizes, room, &tensor.sizes);
        put_list(strides, room, &tensor.strides);
        put(kind, tensor.kind);
        put(count, tensor.sizes.len() as c_int)
    };
    cudnnGetFilterNdDescriptor(
        of: *mut c_void, room: c_int, kind: *mut c_int, format: *mut c_int, count: *mut c_int,
        sizes: *mut c_int
    ) = {
        let Some(tensor) = TENSORS.get(of) else { return BAD_PARAMETER };
        put_list(sizes, room, &tensor.sizes);
        put(kind, tensor.kind);
        put(format, tensor.format);
        put(count, tensor.sizes.len() as c_int)
    };
    cudnnGetCTCLossWorkspaceSize(
        _handle: *mut c_void, probabilities: *mut c_void, _gradients: *mut c_void,
        _labels: *const c_int, label_lengths: *const c_int, _input_lengths: *const c_int,
        algorithm: c_int, _loss: *mut c_void, to: *mut usize
    ) = {
        let batch = TENSORS.get(probabilities).and_then(|it| it.sizes.get(1).copied()).unwrap_or(0);
        put(to, ctc_workspace(probabilities, algorithm, Some(list(label_lengths, batch))))
    };
    cudnnSetTensorNdDescriptor(
        of: *mut c_void, kind: c_int, count: c_int, sizes: *const c_int, strides: *const c_int
    ) = {
        let (sizes, strides) = (list(sizes, count).to_vec(), list(strides, count).to_vec());
        TENSORS.set(of, Tensor { kind, format: 0, sizes, strides });
        SUCCESS
    };
    cudnnSetFilterNdDescriptor(
        of: *mut c_void, kind: c_int, format: c_int, count: c_int, sizes: *const c_int
    ) = {
        let sizes = list(sizes, count).to_vec();
        TENSORS.set(of, Tensor { kind, format, sizes, strides: Vec::new() });
        SUCCESS
    };
    cudnnDestroyTensorDescriptor(of: *mut c_void) = { TENSORS.forget(of); SUCCESS };
    cudnnDestroyFilterDescriptor(of: *mut c_void) = { TENSORS.forget(of); SUCCESS };
    cudnnGetCTCLossWorkspaceSize_v8(
        _handle: *mut c_void, algorithm: c_int, _loss: *mut c_void, probabilities: *mut c_void,
        _gradients: *mut c_void, to: *mut usize
    ) = put(to, ctc_workspace(probabilities, algorithm, None));
    cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: *mut c_void, mode: c_int, _operations: c_int, x: *mut c_void, _z: *mut c_void,
        _y: *mut c_void, _scale: *mut c_void, _activation: *mut c_void, to: *mut usize
    ) = put(to, batch_norm(mode, "forward", x));
    cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: *mut c_void, mode: c_int, _operations: c_int, x: *mut c_void, _y: *mut c_void,
        _dy: *mut c_void, _dz: *mut c_void, _dx: *mut c_void, _scale: *mut c_void,
        _activation: *mut c_void, to: *mut usize
    ) = put(to, batch_norm(mode, "backward", x));
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: *mut c_void, mode: c_int, _operations: c_int, _activation: *mut c_void,
        x: *mut c_void, to: *mut usize
    ) = put(to, batch_norm(mode, "kept", x));
}
