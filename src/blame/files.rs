//! Files that frames name: whose they are, and how they are shown.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::sim::is_of_program;
use crate::trace::{Frame, Stacks};

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

/// Whether a line is the user's own: outside of packages and of the standard library.
pub(super) fn is_own(frame: &Frame) -> bool {
    is_of_user(frame) && in_package(&frame.file).is_none()
}

/// The files of a recording, and how each is shown: those of packages from the package on, the user's own from the
/// folder on that they have in common. Two files are never shown alike.
pub(super) struct Files {
    shown: FxHashMap<Box<str>, String>,
}

impl Files {
    /// The files of one recording.
    pub(super) fn of(stacks: &Stacks) -> Self {
        Self::new(&all(stacks).map(|(file, is_own)| (file, file, is_own)).collect::<Vec<_>>())
    }

    /// The files of two recordings of one program. Where the program lies in another folder, a file of the one is shown
    /// as the same file of the other.
    pub(super) fn of_both(before: &Stacks, after: &Stacks) -> [Self; 2] {
        let own = |stacks| all(stacks).filter(|(_, own)| *own).map(|(file, _)| file).collect();
        let roots = roots(own(before), own(after));
        let side = |stacks, root: &str| -> Vec<_> {
            let from_root = |file, is_own| match in_package(file) {
                None => (file, file.strip_prefix(root).unwrap_or(file), is_own),
                Some(_) => (file, file, is_own),
            };
            all(stacks).map(|(file, is_own)| from_root(file, is_own)).collect()
        };
        let sides = [side(before, &roots[0]), side(after, &roots[1])];
        let together = sides.concat();
        let whole = Self::new(&together);
        // A file may lie in both recordings, in each below another root.
        let of = |side: &[(&str, &str, bool)]| {
            let shown =
                side.iter().map(|&(file, path, _)| (file.into(), whole.at(path).to_owned()));
            Self { shown: shown.collect() }
        };
        [of(&sides[0]), of(&sides[1])]
    }

    /// Files with their paths, which may be shorter, and whether each is the user's own.
    fn new(files: &[(&str, &str, bool)]) -> Self {
        let own = files.iter().filter(|(_, _, is_own)| *is_own).map(|&(_, path, _)| path);
        let folder = common_folder(own);
        let mut paths: Vec<&str> = files.iter().map(|&(_, path, _)| path).collect();
        paths.sort_unstable();
        paths.dedup();
        let least = |path: &str| {
            in_package(path).or_else(|| path.strip_prefix(folder)).map_or(path.len(), str::len)
        };
        let mut lengths: Vec<usize> = paths.iter().map(|path| least(path)).collect();
        tell_apart(&paths, &mut lengths);
        let shown = paths.iter().zip(lengths);
        let shown =
            shown.map(|(path, length)| (Box::from(*path), path[path.len() - length..].to_owned()));
        Self { shown: shown.collect() }
    }

    /// How a file is shown.
    pub(super) fn at<'s>(&'s self, file: &'s str) -> &'s str {
        self.shown.get(file).map_or(file, String::as_str)
    }
}

/// Every file with whether it is the user's own.
fn all(stacks: &Stacks) -> impl Iterator<Item = (&str, bool)> {
    stacks.frames.iter().map(|frame| (&*frame.file, is_own(frame)))
}

/// Makes what is shown of each path, its last bytes, longer by folders until no two are alike.
fn tell_apart(paths: &[&str], lengths: &mut [usize]) {
    loop {
        let mut places: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (place, (path, &length)) in paths.iter().zip(lengths.iter()).enumerate() {
            places.entry(&path[path.len() - length..]).or_default().push(place);
        }
        let alike = places.into_values().filter(|alike| alike.len() > 1);
        let mut is_done = true;
        for place in alike.flatten() {
            let hidden = &paths[place][..paths[place].len() - lengths[place]];
            if !hidden.is_empty() {
                let at = hidden[..hidden.len() - 1].rfind('/').map_or(0, |at| at + 1);
                lengths[place] += hidden.len() - at;
                is_done = false;
            }
        }
        if is_done {
            return;
        }
    }
}

/// The folders from which on the files of two recordings are to be compared: none, if a file lies in both; else what
/// comes before the longest end that two of them share.
fn roots(before: Vec<&str>, after: Vec<&str>) -> [String; 2] {
    let none = [String::new(), String::new()];
    let known: FxHashSet<&str> = before.iter().copied().collect();
    if after.iter().any(|file| known.contains(file)) {
        return none;
    }
    let folder = |file: &str, end: usize| file[..file.len() - end].to_owned();
    let pairs = known.iter().flat_map(|old| after.iter().map(move |new| (*old, *new)));
    let longest = pairs.map(|(old, new)| (shared_end(old, new), old, new)).max();
    let found = longest.filter(|(end, ..)| *end > 0);
    found.map_or(none, |(end, old, new)| [folder(old, end), folder(new, end)])
}

/// Length of the longest end of two paths that is the same, in whole names.
fn shared_end(one: &str, other: &str) -> usize {
    let names = one.rsplit('/').zip(other.rsplit('/')).take_while(|(a, b)| a == b);
    let length: usize = names.map(|(name, _)| name.len() + 1).sum();
    length.saturating_sub(1)
}

/// The folder that files have in common, with the slash at its end.
fn common_folder<'f>(mut files: impl Iterator<Item = &'f str>) -> &'f str {
    let folder = |file: &'f str| &file[..file.rfind('/').map_or(0, |at| at + 1)];
    let Some(mut common) = files.next().map(folder) else { return "" };
    for file in files {
        while !folder(file).starts_with(common) {
            let end = common[..common.len() - 1].rfind('/').map_or(0, |at| at + 1);
            common = &common[..end];
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let shown =
            shown(&["/jobs/me/job/train.py", "/jobs/me/job/nets/a.py", "/x/site-packages/p/a.py"]);
        assert_eq!(shown, ["train.py", "nets/a.py", "p/a.py"]);
        assert_eq!(self::shown(&["/jobs/me/a.py", "b.py"]), ["/jobs/me/a.py", "b.py"]);
        assert_eq!(self::shown(&[]), [""; 0]);
    }

    fn stacks(files: &[&str]) -> Stacks {
        Stacks { frames: files.iter().map(|file| frame(file)).collect(), ..Stacks::default() }
    }

    fn shown(files: &[&str]) -> Vec<String> {
        let known = Files::of(&stacks(files));
        files.iter().map(|file| known.at(file).to_owned()).collect()
    }

    #[test]
    fn files_with_equal_names_get_enough_path_to_tell_them_apart() {
        let files = [
            "/a/lib/site-packages/p/x.py",
            "/b/lib/site-packages/p/x.py",
            "/me/p/x.py",
            "/me/y.py",
        ];
        let found = shown(&files);
        assert_eq!(found[2..], ["me/p/x.py", "y.py"]);
        assert_ne!(found[0], found[1]);
        assert!(found[0].ends_with("site-packages/p/x.py"), "{found:?}");
    }

    #[test]
    fn a_program_in_another_folder_is_the_same_program() {
        for (before, after, names) in [
            (
                &["/a/job/train.py"][..],
                &["/b/job/train.py", "/b/job/m/net.py"][..],
                ["train.py", "train.py"],
            ),
            (&["/p/train.py"], &["/p/train.py", "/p/m/net.py"], ["train.py", "train.py"]),
            (
                &["/p/train.py", "/p/m/u.py"],
                &["/p/train.py", "/p/n/u.py"],
                ["train.py", "train.py"],
            ),
        ] {
            let [old, new] = Files::of_both(&stacks(before), &stacks(after));
            assert_eq!([old.at(before[0]), new.at(after[0])], names);
            let (old, new) = (before.last().unwrap(), (after.last().unwrap(), new));
            assert!(!(old.ends_with("u.py") && new.1.at(new.0) == "u.py"));
        }
    }

    proptest! {
        #[test]
        fn no_two_files_are_shown_alike(
            files in prop::collection::hash_set(
                "(/(a|b|site-packages|lib/python3.1))(/[abc]){1,4}.py",
                0..12,
            ),
        ) {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let mut found = shown(&files);
            prop_assert!(files.iter().zip(&found).all(|(file, shown)| file.ends_with(shown)));
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found.len(), files.len());
        }
    }
}
