//! Signatures: the arguments of functions that ask how large a workspace must be, so that `gmlake measure` can ask a
//! real library the same.
//!
//! A letter for each argument: `h` the library's handle; `i` and `l` integers of 32 and 64 bits; `p` an address on the
//! device, which is not looked at; `s` and `b` the place for the answer, in elements and in bytes; `A`, `D` and `V`
//! sparse and dense matrices and vectors; `S` a factor on the host, of which it counts whether it is zero; the others
//! are objects without contents that matter, as [`word`] names them.

use crate::exports::matrices;
use crate::exports::state::pointer;
use crate::workspace::Question;

/// Functions of cuSOLVER without `cusolverDn`, the letter of their type, and `_bufferSize`.
const OF_CUSOLVER: [(&str, &str); 21] = [
    ("geev", "hPiiliplipipliplibb"),
    ("geqrf", "hiipis"),
    ("gesvd", "hiis"),
    ("gesvdaStridedBatched", "hiiiipilplpilpilsi"),
    ("gesvdj", "hiiiipippipisj"),
    ("gesvdjBatched", "hiiipippipisji"),
    ("getrf", "hiipis"),
    ("heevd", "hiiipips"),
    ("heevj", "hiiipipsJ"),
    ("heevjBatched", "hiiipipsJi"),
    ("orgqr", "hiiipips"),
    ("ormqr", "hiiiiipippis"),
    ("potrf", "hiipis"),
    ("syevBatched", "hPiiliplipibbl"),
    ("syevd", "hiiipips"),
    ("syevj", "hiiipipsJ"),
    ("syevjBatched", "hiiipipsJi"),
    ("sytrf", "hipis"),
    ("sytrs", "hilliplpiplbb"),
    ("ungqr", "hiiipips"),
    ("unmqr", "hiiiiipippis"),
];

/// Those that take any type and have another signature.
const OF_ANY_TYPE: [(&str, &str); 3] =
    [("geqrf", "hPlliplipibb"), ("potrf", "hPiliplibb"), ("syevd", "hPiiliplipibb")];

/// Functions of cuSPARSE.
const OF_CUSPARSE: [(&str, &str); 12] = [
    ("cusparseCcsrgeam2_bufferSizeExt", "hiiSmipppSmipppmpppb"),
    ("cusparseDcsrgeam2_bufferSizeExt", "hiiSmipppSmipppmpppb"),
    ("cusparseSDDMM_bufferSize", "hiiSDDSAiib"),
    ("cusparseScsrgeam2_bufferSizeExt", "hiiSmipppSmipppmpppb"),
    ("cusparseSpGEMM_workEstimation", "hiiSAASAiigb0"),
    ("cusparseSpMM_bufferSize", "hiiSADSDiib"),
    ("cusparseSpMV_bufferSize", "hiSAVSViib"),
    ("cusparseSpSM_bufferSize", "hiiSADDiitb"),
    ("cusparseSpSV_bufferSize", "hiSAVViivb"),
    ("cusparseXcoosort_bufferSizeExt", "hiiippb"),
    ("cusparseXcsrsort_bufferSizeExt", "hiiippb"),
    ("cusparseZcsrgeam2_bufferSizeExt", "hiiSmipppSmipppmpppb"),
];

/// The signature of a function.
fn signature(name: &str) -> Option<&'static str> {
    let of = |table: &[(&str, &'static str)], name| {
        table.iter().find(|(each, _)| *each == name).map(|&(_, letters)| letters)
    };
    let Some(rest) = name.strip_prefix("cusolverDn") else { return of(&OF_CUSPARSE, name) };
    let (kind, rest) = rest.split_at_checked(1)?;
    let rest = rest.strip_suffix("_bufferSize")?;
    let any = if kind == "X" { of(&OF_ANY_TYPE, rest) } else { None };
    any.or_else(|| of(&OF_CUSOLVER, rest))
}

/// The line of a call, if the function is known and all that it is given is: its name, and its arguments as words.
pub fn line(name: &str, arguments: &[u64]) -> Option<String> {
    let letters = signature(name)?;
    let words: Option<Vec<_>> =
        letters.chars().zip(arguments).map(|(letter, &argument)| word(letter, argument)).collect();
    let question =
        if name.starts_with("cuso") { Question::Decomposition } else { Question::Sparse };
    Some(question.line(format_args!("call={name} with={}", words?.join(":"))))
}

fn word(letter: char, argument: u64) -> Option<String> {
    let word = match letter {
        'i' => return Some((argument as i32).to_string()),
        'l' => return Some((argument as i64).to_string()),
        'A' | 'D' | 'V' => return matrices::word(pointer(argument)),
        'h' => "handle",
        'p' => "address",
        's' => "elements",
        'b' => "bytes",
        'P' => "params",
        'j' => "gesvdj",
        'J' => "syevj",
        'S' if argument == 0 => "zero",
        'S' => "factor",
        'm' => "description",
        'g' => "spgemm",
        't' => "spsm",
        'v' => "spsv",
        _ => "null",
    };
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_line_of_words() {
        let line = |name: &str, arguments: &[u64]| line(name, arguments).unwrap();
        let minus_one = u64::from(u32::MAX);
        assert_eq!(
            line("cusolverDnSsyevj_bufferSize", &[9, 1, 0, 64, 7, 64, 7, 7, minus_one]),
            "decomposition,call=cusolverDnSsyevj_bufferSize \
             with=handle:1:0:64:address:64:address:elements:syevj"
        );
        assert_eq!(
            line("cusolverDnXpotrf_bufferSize", &[9, 9, 0, 1 << 33, 1, 7, 64, 1, 7, 7]),
            "decomposition,call=cusolverDnXpotrf_bufferSize \
             with=handle:params:0:8589934592:1:address:64:1:bytes:bytes"
        );
        assert_eq!(
            line("cusparseXcoosort_bufferSizeExt", &[9, minus_one, 3, 4, 7, 7, 7]),
            "sparse,call=cusparseXcoosort_bufferSizeExt with=handle:-1:3:4:address:address:bytes"
        );
    }

    #[test]
    fn what_has_no_signature_or_an_unknown_matrix_has_no_line() {
        assert_eq!(line("cusparseSbsrsv2_bufferSize", &[0; 20]), None);
        assert_eq!(line("cusparseSpMV_bufferSize", &[0; 20]), None);
        assert_eq!(line("cusolverDn_bufferSize", &[0; 20]), None);
    }
}
