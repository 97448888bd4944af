//! Files that frames name: whose they are, and how they are shown.

use crate::trace::{Frame, Stacks};

/// Whether it is a frame of the program that was recorded, and not of `gmlake predict`, which has frames of its own in
/// autograd's backward threads too.
pub(super) fn is_of_program(frame: &Frame) -> bool {
    !frame.file.contains("/gmlake/predict/")
}

/// Whether a user can change the line: a Python file that is neither PyTorch's nor the standard library's, nor made.
pub(super) fn is_of_user(frame: &Frame) -> bool {
    let file = &*frame.file;
    let is_typed = file.starts_with("<stdin>") || file.starts_with("<ipython-input");
    let is_torch = ["site-packages/torch/", "dist-packages/torch/", "/pytorch/torch/"];
    let is_made = file.contains("torchinductor_");
    let is_file = file.ends_with(".py") || file.ends_with(".ipynb");
    is_typed
        || (is_file
            && !is_made
            && is_of_program(frame)
            && !file.starts_with('<')
            && !is_torch.iter().any(|part| file.contains(part))
            && (package_at(file).is_some() || standard_at(file).is_none()))
}

/// Where the path inside a folder of packages begins.
fn package_at(file: &str) -> Option<usize> {
    let folders = ["site-packages/", "dist-packages/"];
    folders.iter().filter_map(|folder| Some(file.rfind(folder)? + folder.len())).max()
}

/// Where the path inside Python's standard library begins.
fn standard_at(file: &str) -> Option<usize> {
    let at = file.find("/lib/python3.")? + "/lib/".len();
    Some(at + file[at..].find('/')? + 1)
}

/// The path from the package on, or from the standard library on.
pub(super) fn in_package(file: &str) -> Option<&str> {
    package_at(file).or_else(|| standard_at(file)).map(|at| &file[at..])
}

/// The folder that all the user's own files have in common, with the slash at its end.
pub(super) fn common_folder(stacks: &Stacks) -> String {
    let own = |frame: &&Frame| is_of_user(frame) && in_package(&frame.file).is_none();
    let mut folders = stacks.frames.iter().filter(own).map(|frame| {
        let end = frame.file.rfind('/').map_or(0, |at| at + 1);
        &frame.file[..end]
    });
    let Some(mut common) = folders.next() else { return String::new() };
    for folder in folders {
        while !folder.starts_with(common) {
            let end = common[..common.len() - 1].rfind('/').map_or(0, |at| at + 1);
            common = &common[..end];
        }
    }
    common.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str) -> Frame {
        Frame { file: file.into(), line: 1, function: "f".into() }
    }

    #[test]
    fn lines_that_a_user_can_change_are_told_from_those_of_libraries() {
        for file in [
            "/jobs/me/train.py",
            "train.py",
            "/opt/venv/lib/python3.12/site-packages/transformers/models/opt/modeling_opt.py",
            "<stdin>",
            "<ipython-input-3-abc>",
            "/jobs/me/torch/train.py",
        ] {
            assert!(is_of_user(&frame(file)), "{file}");
        }
        for file in [
            "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
            "/usr/lib/python3.12/contextlib.py",
            "<frozen importlib._bootstrap>",
            "<string>",
            "??",
            "/pytorch/aten/src/ATen/Context.cpp",
            "/tmp/torchinductor_me/ab/cabc.py",
            "/opt/venv/lib/python3.12/site-packages/gmlake/predict/operators.py",
        ] {
            assert!(!is_of_user(&frame(file)), "{file}");
        }
    }

    #[test]
    fn files_are_shown_from_the_package_or_the_common_folder_on() {
        assert_eq!(in_package("/x/site-packages/peft/a.py"), Some("peft/a.py"));
        assert_eq!(in_package("/usr/lib/python3.12/json/a.py"), Some("json/a.py"));
        assert_eq!(in_package("/jobs/me/a.py"), None);
        let files = ["/jobs/me/job/train.py", "/jobs/me/job/nets/a.py", "/x/site-packages/p/a.py"];
        let stacks = Stacks { frames: files.map(frame).to_vec(), ..Stacks::default() };
        assert_eq!(common_folder(&stacks), "/jobs/me/job/");
        assert_eq!(common_folder(&Stacks::default()), "");
        let files = ["/jobs/me/a.py", "b.py"];
        let stacks = Stacks { frames: files.map(frame).to_vec(), ..Stacks::default() };
        assert_eq!(common_folder(&stacks), "");
    }
}
