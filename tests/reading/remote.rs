//! Remote files: the same bytes as the local ones, whatever the network does; what fails in the end is one line.
//!
//! `tests/remote` does the same with real servers.

#![cfg(feature = "remote")]
use crate::flaky_server;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::cli::{gmlake_sim, output};
use assert_cmd::Command;
use flaky_server::{Fault, Server};
use gmlake::remote::{RemoteError, fetch, list};
use gmlake::units::MIB;

const RECORDING: &str = "traces/streams.pickle.xz";

/// Bytes that differ from place to place.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// What a program has that reads from this server, which stands for Amazon and for Hugging Face.
fn with_server(server: &Server) -> Command {
    let mut command = gmlake_sim();
    for name in ["AWS_ACCESS_KEY_ID", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    let url = server.url("");
    command
        .env("AWS_ENDPOINT_URL", &url)
        .env("HF_ENDPOINT", &url)
        .env("GMLAKE_REMOTE_TIMEOUT", "1");
    command
}

fn stderr(command: &mut Command) -> String {
    String::from_utf8(command.assert().code(2).get_output().stderr.clone()).unwrap()
}

#[test]
fn whatever_the_network_does_the_bytes_are_the_same() {
    let bytes = noise(100_000);
    let server = Server::new(&[("/a/b.bin", &bytes)]);
    for faults in [
        &[][..],
        &[Fault::Status(503, "SlowDown"), Fault::Status(500, "InternalError")],
        &[Fault::Cut(0), Fault::Cut(50_000), Fault::Cut(99_999)],
        &[Fault::Reset, Fault::Status(429, ""), Fault::Reset],
        &[Fault::Redirect("/a/b.bin"), Fault::Cut(7)],
        &[Fault::NoParts],
    ] {
        server.fail(faults);
        assert_eq!(fetch(&server.url("/a/b.bin"), MIB).unwrap(), bytes, "{faults:?}");
        assert_eq!(server.faults_left(), 0, "{faults:?}");
    }
}

#[test]
fn a_large_file_comes_in_parts_and_only_the_broken_one_again() {
    let bytes = noise(70 << 20);
    let server = Server::new(&[("/large", &bytes)]);
    // The second of three parts breaks off.
    assert_eq!(fetch(&server.url("/large"), 100 * MIB).unwrap().len(), bytes.len());
    assert_eq!(server.asked().len(), 3);
    thread::scope(|scope| {
        let failing = server.clone();
        scope.spawn(move || {
            while failing.asked().is_empty() {
                thread::yield_now();
            }
            failing.fail(&[Fault::Cut(1 << 20)]);
        });
        assert_eq!(fetch(&server.url("/large"), 100 * MIB).unwrap(), bytes);
    });
    assert_eq!(server.faults_left(), 0);
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn many_threads_lose_nothing() {
    let files: Vec<(String, Vec<u8>)> =
        (0..8).map(|file| (format!("/f{file}"), noise(10_000 + file))).collect();
    let shown: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    let server = Server::new(&shown);
    server.fail(&[
        Fault::Reset,
        Fault::Status(503, "SlowDown"),
        Fault::Cut(5),
        Fault::Reset,
        Fault::Cut(0),
    ]);
    // Five: were one thread to meet them all, it would still have its sixth try.
    thread::scope(|scope| {
        for (path, bytes) in &files {
            scope.spawn(|| assert_eq!(fetch(&server.url(path), MIB).unwrap(), *bytes));
        }
    });
}

#[test]
fn what_cannot_be_had_is_said_at_once() {
    let server = Server::new(&[("/empty", b""), ("/x", b"12345"), ("/f/y", b"1")]);
    let failed = |path: &str, most| fetch(&server.url(path), most).unwrap_err();
    let start = Instant::now();
    assert_eq!(fetch(&server.url("/empty"), 9).unwrap(), b"");
    let says = |error: RemoteError, words: &str| {
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.is_transient, "{error}");
    };
    says(failed("/nothing", 9), "/nothing: there is no such file; check its name");
    says(failed("/x", 4), "5 B of content, above the limit of 4 B");
    says(failed("/f/", 4), "is a folder; name one of the files in it");
    says(failed("/a b", 4), "not an address: write %20 for a blank");
    server.fail(&[Fault::Status(403, "AccessDenied")]);
    says(failed("/x?X-Amz-Signature=secret", 9), "/x: access is denied (403 AccessDenied); log in");
    server.fail(&[Fault::Redirect("/x"); 11]);
    says(failed("/x", 9), "it leads from address to address");
    server.fail(&[]);
    says(list(&server.url("/f/*")).unwrap_err(), "a web server does not say which files it has");
    says(fetch("ftp://a/b", 9).unwrap_err(), "take s3, gs, az, hf, http, https");
    says(fetch("s3://", 9).unwrap_err(), "write s3://BUCKET/KEY");
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn what_fails_and_fails_ends_in_a_line() {
    let all = [
        (Fault::Status(503, "SlowDown"), ": the server is busy (503 SlowDown) (6 tries in "),
        (Fault::Cut(10), " broke off after 10 of 1000 bytes (6 tries in "),
        (Fault::Reset, " broke off (6 tries in "),
    ];
    thread::scope(|scope| {
        for (fault, words) in all {
            scope.spawn(move || {
                let server = Server::new(&[("/x", &noise(1000))]);
                server.fail(&[fault; 6]);
                let error = fetch(&server.url("/x"), MIB).unwrap_err();
                assert!(error.is_transient && error.to_string().contains(words), "{error}");
                assert_eq!(server.faults_left(), 0);
            });
        }
    });
}

#[test]
fn a_silent_server_is_asked_again() {
    let bytes = fs::read(RECORDING).unwrap();
    let server = Server::new(&[("/s.pickle.xz", &bytes)]);
    server.fail(&[Fault::Silence(3), Fault::Silence(3)]);
    let url = server.url("/s.pickle.xz");
    let start = Instant::now();
    with_server(&server).args(["inspect", &url]).assert().success();
    assert!(start.elapsed() < Duration::from_secs(6));
    server.fail(&[Fault::Silence(3); 6]);
    let text = stderr(with_server(&server).args(["inspect", &url]));
    assert!(text.contains("did not answer within 1 s (6 tries in "), "{text}");
    assert!(text.contains("; check the network, or raise GMLAKE_REMOTE_TIMEOUT; "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// The output of a command, with one name in place of another.
fn said(command: &mut Command, from: &str, to: &str) -> String {
    let out = command.assert().success().get_output().stdout.clone();
    String::from_utf8(out).unwrap().replace(from, to)
}

#[test]
fn a_folder_of_a_bucket_is_a_job_like_a_local_one() {
    let bytes = fs::read(RECORDING).unwrap();
    let local = tempfile::tempdir().unwrap();
    let names = ["j.r0.pickle.xz", "j.r1.pickle.xz", "j.r2.pickle.xz"];
    names.iter().for_each(|name| fs::write(local.path().join(name), &bytes).unwrap());
    let (mut files, mut hub) = (Vec::new(), Vec::new());
    for name in names.iter().chain(&["notes.txt", ".hidden.pickle", "deep/j.r9.pickle"]) {
        files.push(format!("/runs/a/{name}"));
        hub.push(format!("/datasets/o/n/resolve/main/a/{name}"));
    }
    let all: Vec<(&str, &[u8])> =
        files.iter().chain(&hub).map(|path| (path.as_str(), bytes.as_slice())).collect();
    let server = Server::new(&all);
    let folder = format!("{}/", local.path().display());
    let arguments = |place: &str| {
        ["plan", "--json", "--allocators", "caching", "--job"]
            .map(str::to_owned)
            .into_iter()
            .chain([place.to_owned()])
    };
    let expected = said(gmlake_sim().args(arguments(&folder)), &folder, "");
    assert_eq!(expected.matches("j.r2").count(), expected.matches("j.r0").count());
    for place in [
        "s3://runs/a/",
        "hf://datasets/o/n/a/",
        "s3://runs/a/j.*",
        "hf://datasets/o/n@main/*/j.r[0-9].*",
    ] {
        server.fail(&[
            Fault::Status(503, "SlowDown"),
            Fault::Cut(20),
            Fault::Cut(20),
            Fault::Reset,
        ]);
        let found = said(with_server(&server).args(arguments(place)), place, "");
        let prefix = &place[..place.find("a/j").or(place.find("*/")).map_or(place.len(), |at| at)];
        let found = found.replace(&format!("{prefix}a/"), "");
        assert_eq!(found, expected, "{place}");
        assert_eq!(server.faults_left(), 0);
    }
    let mut deep = with_server(&server);
    let deep = said(deep.args(["inspect", "--json", "s3://runs/a/deep/j.r9.pickle"]), "", "");
    assert!(deep.contains("\"s3://runs/a/deep/j.r9.pickle\""), "{deep}");
}

#[test]
fn a_fleet_takes_all_folders_of_a_bucket() {
    let bytes = fs::read(RECORDING).unwrap();
    let names = ["j.r0.pickle", "j.r1.pickle", "x/s.json", "x/y/j.r9.pickle", "x/y/notes.json"];
    let hidden = ["x/.trash/j.r0.pickle", ".j.r2.pickle"];
    let results = ["out/fleet.json", "out/ranks/job=j/date=d/part-0.parquet"];
    for root in ["/runs/a/", "/datasets/o/n/resolve/main/a/"] {
        let files: Vec<String> = names
            .iter()
            .chain(&hidden)
            .chain(&results)
            .map(|name| format!("{root}{name}"))
            .collect();
        let all: Vec<_> = files.iter().map(|name| (name.as_str(), bytes.as_slice())).collect();
        let server = Server::new(&all);
        let place = if root.starts_with("/runs") { "s3://runs/a/" } else { "hf://datasets/o/n/a/" };
        let local = tempfile::tempdir().unwrap();
        let out = local.path().join("out").display().to_string();
        let mut command = with_server(&server);
        command.args(["fleet", place, "--allocators", "caching", "--json", "--out", &out]);
        let said = said(&mut command, "", "");
        assert!(said.contains("\"recordings\": 4"), "{said}");
    }
}

#[test]
fn refusals_of_a_bucket_name_the_way_out() {
    let server = Server::new(&[("/runs/x", b"1")]);
    for (fault, words) in [
        (Fault::Status(403, "AccessDenied"), "there are no credentials: set AWS_ACCESS_KEY_ID and"),
        (Fault::Status(404, "NoSuchBucket"), "there is no such bucket; check its name"),
        (Fault::Status(400, "ExpiredToken"), "the credentials have expired; get new ones"),
        (Fault::Status(301, "PermanentRedirect"), "the server answered 301 PermanentRedirect"),
    ] {
        for command in [["inspect", "s3://runs/x"], ["compare", "s3://runs/x/"]] {
            server.fail(&[fault]);
            let text = stderr(with_server(&server).args(command));
            assert!(text.contains(words), "{text}");
            assert!(
                text.contains("'gmlake-sim help remote'") && text.lines().count() == 1,
                "{text}"
            );
        }
    }
    let text = stderr(
        with_server(&server).args(["inspect", "az://c/x"]).env_remove("AZURE_STORAGE_ACCOUNT_NAME"),
    );
    assert!(text.contains("set AZURE_STORAGE_ACCOUNT_NAME"), "{text}");
    let text =
        stderr(with_server(&server).args(["inspect", RECORDING, "--export-json", "s3://a/b"]));
    assert!(text.contains("s3://a/b: remote files are only read"), "{text}");
}

#[test]
fn a_secret_goes_to_its_server_alone_and_into_no_output() {
    let bytes = fs::read(RECORDING).unwrap();
    let elsewhere = Server::new(&[("/cdn", &bytes)]);
    let hub = Server::new(&[]);
    let to: &'static str = Box::leak(
        elsewhere.url("/cdn?sig=hidden").replace("127.0.0.1", "localhost").into_boxed_str(),
    );
    hub.fail(&[Fault::Redirect(to)]);
    let mut command = with_server(&hub);
    command.env("HF_TOKEN", "hf_secret").args(["inspect", "hf://o/n/s.pickle.xz"]);
    let shown = said(&mut command, "", "");
    assert!(shown.contains("hf://o/n/s.pickle.xz"), "{shown}");
    let (first, second) = (hub.asked().concat(), elsewhere.asked().concat());
    assert!(
        first.starts_with("get /o/n/resolve/main/s.pickle.xz ")
            && first.contains("bearer hf_secret")
    );
    assert!(!second.contains("hf_secret"), "{second}");
    let url = elsewhere.url("/cdn?sig=secret");
    for command in ["inspect", "verify", "compare", "plan"] {
        let out = with_server(&hub).args([command, &url, "--json"]).assert().success();
        let out = out.get_output().clone();
        let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(text.contains("/cdn\"") && !text.contains("secret"), "{command}: {text}");
    }
    assert!(elsewhere.asked().iter().all(|head| head.contains("/cdn?sig=secret ")));
}

#[test]
fn a_local_file_is_not_taken_for_a_remote_one() {
    assert!(output(&["inspect", "--json", "./traces/streams.pickle.xz"]).contains("streams"));
}
