//! Frames: which frame of a call stack says who asked for memory.
//!
//! PyTorch's default (`stacks="all"`) records the frames of C++ too, innermost first:
//!
//! ```text
//!   torch::unwind::unwind()                                     how the stack was gathered   never named
//!   c10::cuda::CUDACachingAllocator::...::malloc(...)           the allocator                never named
//!   at::detail::empty_cuda(...)                                 an empty tensor              never named
//!   at::native::mm(...)                                         an operator
//!   torch::autograd::generated::MmBackward0::apply(...)         a node of autograd: MmBackward0
//!   torch::autograd::Engine::thread_main(...)                   its thread, without a frame of Python
//! ```

use std::borrow::Cow;

use crate::trace::{Entry, Frame, Records};

/// Whether requests were recorded with their stacks, so that one without a stack was made without Python.
pub(crate) fn has_stacks(records: &Records) -> bool {
    let has_one = |entry: &Entry| entry.stack != Entry::NO_STACK;
    !records.stacks.stacks.is_empty() && records.entries.iter().any(has_one)
}

/// Whether it is a frame of the program that was recorded, and not of `gmlake predict`, which has frames of its own in
/// autograd's backward threads too.
pub(crate) fn is_of_program(frame: &Frame) -> bool {
    !frame.file.contains("/gmlake/predict/")
}

/// How the functions begin that gather stacks, and the one below every operator that makes a tensor.
const GATHERING: [&str; 6] = [
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::SymbolizedTracebacks",
    "torch::symbolize",
    "at::detail::",
    "c10::GatheredContext",
];

/// Parts of the names of allocators, and of what is between them and a tensor.
const ALLOCATORS: [&str; 8] = [
    "CachingAllocator",
    "CachingDeviceAllocator",
    "CachingHostAllocator",
    "PluggableAllocator",
    "c10::Allocator::",
    "c10::DeviceAllocator::",
    "c10::StorageImpl::",
    "c10::DataPtr::",
];

/// Whether a frame is of the machinery below every request, so that it says nothing about who asked: how the stack was
/// gathered, the allocator, and `at::detail`.
pub(crate) fn is_machinery(frame: &Frame) -> bool {
    if is_python(frame) {
        return false;
    }
    let name = qualified(&frame.function);
    let gathers = name.ends_with("::gather_with_cpp") || name.ends_with("::gather");
    GATHERING.iter().any(|start| name.starts_with(start))
        || ALLOCATORS.iter().any(|part| name.contains(part))
        || (gathers && name.starts_with("torch::"))
}

/// Whether a frame is of Python, and not of C++ or the system.
pub(crate) fn is_python(frame: &Frame) -> bool {
    let file = &*frame.file;
    let ends = |endings: &[&str]| endings.iter().any(|ending| file.ends_with(ending));
    let is_compiled = || ends(&[".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".cuh", ".so"]);
    ends(&[".py", ".pyc", ".pyw", ".ipynb"])
        || file.starts_with('<')
        || (frame.line > 0 && !frame.function.contains("::") && !is_compiled())
}

/// The node of autograd that a frame carries out: `IndexBackward0` of
/// `torch::autograd::generated::IndexBackward0::apply(...)`.
pub(crate) fn node(frame: &Frame) -> Option<String> {
    if is_python(frame) {
        return None;
    }
    let whole = without_arguments(&frame.function);
    let (path, _) = whole.rsplit_once("::").filter(|(_, last)| *last == "apply")?;
    // A node that a C++ extension defines is the argument of a template.
    let own = path.rsplit_once("CppNode<").and_then(|(_, own)| own.strip_suffix('>'));
    let path = qualified(own.unwrap_or(path));
    let name = path.rsplit("::").next()?;
    let is_node = own.is_some() || path.starts_with("torch::autograd::") || is_backward(name);
    // The last two say nothing about which node it is.
    (is_node && !name.is_empty() && !["Node", "PyNode"].contains(&name)).then(|| name.to_owned())
}

/// Whether a class is named as those that autograd generates: `MmBackward0`.
fn is_backward(name: &str) -> bool {
    name.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("Backward")
}

/// Whether a frame is of autograd's engine.
pub(crate) fn is_of_engine(frame: &Frame) -> bool {
    !is_python(frame) && qualified(&frame.function).starts_with("torch::autograd::Engine::")
}

/// A function of C++ without the list of its arguments; one of Python as it is.
pub(crate) fn without_arguments(function: &str) -> &str {
    let whole = function.strip_suffix(" const").unwrap_or(function);
    if !whole.ends_with(')') {
        return function;
    }
    let mut depth = 0_usize;
    for (at, letter) in whole.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            let name = &whole[..at];
            // `operator()`, or a name that is nothing but parentheses.
            let is_name = name.is_empty() || name.ends_with("operator");
            return if is_name { whole } else { name };
        }
    }
    function
}

/// The path of a function of C++: without its arguments, those of templates, and the type of its result.
fn qualified(function: &str) -> Cow<'_, str> {
    let name = without_arguments(function);
    if !name.contains(['<', ' ']) {
        return Cow::Borrowed(name);
    }
    let name = name.replace("(anonymous namespace)", "anonymous");
    let (mut depth, mut plain) = (0_usize, String::with_capacity(name.len()));
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    Cow::Owned(plain.rsplit(' ').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(function: &str) -> Frame {
        Frame { file: "??".into(), line: 0, function: function.into() }
    }

    #[test]
    fn the_machinery_below_every_request_is_known() {
        for function in [
            "torch::unwind::unwind()",
            "torch::CapturedTraceback::gather(bool, bool, bool)",
            "torch::cuda::gather_with_cpp()",
            "torch::cuda::(anonymous namespace)::gather_with_cpp()",
            "torch::xpu::_gather_with_cpp::gather()",
            "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, \
             unsigned long, CUstream_st*)",
            "c10::hip::HIPCachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
            "c10::CachingDeviceAllocatorImpl<X>::allocate(unsigned long)",
            "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long)",
            "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
            "at::detail::empty_cuda(c10::ArrayRef<long>)",
            "c10::StorageImpl::StorageImpl(c10::StorageImpl::use_byte_size_t, c10::SymInt)",
        ] {
            assert!(is_machinery(&native(function)), "{function}");
        }
        for function in [
            "at::native::mm(at::Tensor const&)",
            "at::native::resize_bytes(c10::StorageImpl*, c10::Allocator::X)",
            "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)",
            "at::native::gather(at::Tensor const&, long)",
            "my::op(c10::cuda::CUDACachingAllocator::Native*)",
            "__clone",
        ] {
            assert!(!is_machinery(&native(function)), "{function}");
        }
        let python = Frame { file: "CachingAllocator.py".into(), line: 3, function: "f".into() };
        assert!(!is_machinery(&python));
    }

    #[test]
    fn nodes_are_named_by_their_class() {
        for (function, name) in [
            (
                "torch::autograd::generated::IndexBackward0::apply(std::vector<at::Tensor, \
                 std::allocator<at::Tensor> >&&)",
                Some("IndexBackward0"),
            ),
            (
                "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
                Some("AccumulateGrad"),
            ),
            ("torch::autograd::CppNode<(anonymous namespace)::Roll>::apply(X&&)", Some("Roll")),
            ("mine::FlashBackward::apply(X&&)", Some("FlashBackward")),
            ("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", None),
            ("torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", None),
            ("at::native::apply(at::Tensor const&)", None),
            ("apply", None),
        ] {
            assert_eq!(node(&native(function)).as_deref(), name, "{function}");
        }
    }

    #[test]
    fn arguments_are_left_out_and_names_kept() {
        for (function, name) in [
            ("at::native::mm(at::Tensor const&)", "at::native::mm"),
            ("a::(anonymous namespace)::f(b (*)(c)) const", "a::(anonymous namespace)::f"),
            ("a::operator()", "a::operator()"),
            ("a::operator()(long)", "a::operator()"),
            ("forward", "forward"),
            ("<lambda>", "<lambda>"),
            (")))", ")))"),
            ("()", "()"),
        ] {
            assert_eq!(without_arguments(function), name, "{function}");
        }
        assert_eq!(qualified("at::Tensor at::f<std::pair<a, b> >(int)"), "at::f");
    }
}
