//! Foreign files: what people have in place of recordings. One line says what a file is and what to do.

use std::path::Path;

use gmlake::trace::{LoadOptions, Records, load_bytes};

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).expect("the fixture is there")
}

fn only(bytes: &[u8]) -> Records {
    let mut all = load_bytes(bytes, &LoadOptions::default()).expect("it can be read");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn files_that_cannot_help_say_what_they_are_and_what_to_do() {
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"rank0");
    tar[257..262].copy_from_slice(b"ustar");
    let checkpoint = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.";
    let safe = b"\x20\0\0\0\0\0\0\0{\"w\":{\"data_offsets\":[0,1]}}";
    let ranks = data("variants/ranks.pickle");
    let stats = data("variants/stats.pickle");
    let cases: [(&[u8], &str); 13] = [
        (b"BZh91AY", "bunzip2"),
        (&tar, "a tar archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"SQLite format 3\0", "Nsight"),
        (b"[[1, 2, 3], [[0, 1]]]", "export_memory_timeline"),
        (b"<html><img src='data:image/png;base64,iVBORw0'>", "export_memory_timeline"),
        (b"<html></html>", "a web page without a snapshot"),
        (b"{'segments': [{'device': 0}]}", "Python's repr"),
        (checkpoint, "a checkpoint with tensors (torch._utils._rebuild_tensor_v2)"),
        (safe, "safetensors"),
        (b"PK\x03\x04 cut off", "the zip archive is damaged"),
        (&ranks, "holds 2 snapshots"),
        (&stats, "memory_stats()"),
    ];
    for (bytes, words) in cases {
        let error = load_bytes(bytes, &LoadOptions::default()).map(|all| all.len());
        let shown = error.expect_err(words).to_string();
        assert!(shown.contains(words) && !shown.contains('\n'), "{shown}");
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, bytes).expect("it is packed");
    gzip.finish().expect("it is packed")
}

/// An archive of one file, as it is: its header and bytes, the directory, and where that is.
fn zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let (size, name_len) = (bytes.len() as u32, name.len() as u16);
    let sizes = [size.to_le_bytes(), size.to_le_bytes()].concat();
    let mut out = [b"PK\x03\x04", &[0; 14][..], &sizes, &name_len.to_le_bytes(), &[0; 2]].concat();
    out.extend([name.as_bytes(), bytes].concat());
    let directory = out.len() as u32;
    let head = [b"PK\x01\x02", &[0; 16][..], &sizes, &name_len.to_le_bytes(), &[0; 16]].concat();
    out.extend([&head, name.as_bytes()].concat());
    out.extend([b"PK\x05\x06", &[0; 4][..], &[1, 0, 1, 0], &[0; 4]].concat());
    out.extend([&directory.to_le_bytes()[..], &[0; 2]].concat());
    out
}

/// Packed or not, the line is about the file that people have, not about how its bytes go on.
#[test]
fn foreign_files_are_named_whether_they_are_packed_or_not() {
    let mp4 = b"\0\0\0\x20ftypisom";
    let cases: [(&[u8], &str); 16] = [
        (b"\x7fELF\x02\x01\x01\0", "a program"),
        (b"MZ\x90\0", "a program"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"<?xml version=\"1.0\"?><a/>", "XML"),
        (b"<!DOCTYPE html><html>Sign in</html>", "a web page without a snapshot"),
        (b"GGUF\x03\0\0\0", "a checkpoint (GGUF)"),
        (b"\x93NUMPY\x01\0", "an array of NumPy"),
        (b"PAR1\0\0", "a Parquet table"),
        (
            b"{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"aten::add\"}]}",
            "a profiler's trace without",
        ),
        (b"{\"error\": \"not found\"}", "JSON, but neither a snapshot nor"),
        (b"name,age\nbob,3\n", "begins with \"name,age"),
        (mp4, "binary data that begin with the bytes 00 00 00 20 66"),
        (&zip("readme.txt", b"hello"), "a zip archive without a recording in it"),
        (&zip("data.pkl", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n."), "a checkpoint"),
    ];
    for (bytes, words) in cases {
        for content in [bytes, &gzipped(bytes)] {
            let error = load_bytes(content, &LoadOptions::default()).map(|all| all.len());
            let shown = error.expect_err(words).to_string();
            assert!(shown.contains(words) && !shown.contains('\n'), "{shown}");
        }
    }
}

/// However small the page is.
#[test]
fn a_packed_page_with_a_snapshot_is_read() {
    for name in ["variants/page.html", "variants/stored.zip"] {
        let bytes = data(name);
        assert_eq!(only(&gzipped(&bytes)).entries, only(&bytes).entries, "{name}");
    }
}
