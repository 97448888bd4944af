//! What every report looks like for a tiny trace, and that the numbers are the same in all.

use std::path::Path;

use gmlake::allocator::Usage;
use gmlake::device::CallCounts;
use gmlake::metrics::{Comparison, Moment, RECORDED, RunSummary, StepSummary, Timeline};
use gmlake::report::{ReportFormat, table};
use gmlake::units::{Bytes, GIB, MIB};

fn run(allocator: &str, reserved: Bytes, active: Bytes) -> RunSummary {
    let mut timeline = Timeline::for_events(4);
    for share in 1..=4 {
        let part = |bytes: Bytes| bytes * share / 4;
        let (active, reserved) = (part(active), part(reserved));
        timeline.push(Usage { requested: active, allocated: active, active, reserved });
    }
    timeline.times_us = vec![0, 1_000_000, 2_000_000, 3_000_000];
    let mut run = RunSummary {
        file: "jobs/tiny_job.pickle.xz".to_owned(),
        allocator: allocator.to_owned(),
        events: 4,
        requested_peak_bytes: active - 1,
        active_peak_bytes: active,
        reserved_peak_bytes: reserved,
        device_calls: CallCounts { mem_alloc: 1234, mem_free: 2, ..CallCounts::default() },
        host_ns: (allocator != RECORDED).then_some(168),
        timeline,
        ..RunSummary::default()
    };
    run.set_ratios();
    run
}

fn tiny() -> Comparison {
    let mut gmlake = run("gmlake", 5 * GIB, 4 * GIB);
    gmlake.options = vec!["fragment_limit=128MiB".to_owned()];
    gmlake.allocator_counters = vec![("stitches".to_owned(), 7), ("splits".to_owned(), 1_000)];
    gmlake.steps = vec![StepSummary {
        end_event: 4,
        active_peak_bytes: 4 * GIB,
        reserved_peak_bytes: 5 * GIB,
        allocator_counters: vec![("stitches".to_owned(), 7), ("splits".to_owned(), 1_000)],
        ..StepSummary::default()
    }];
    let mut native = run("native", 3 * GIB, 3 * GIB);
    (native.oom_count, native.first_oom_event) = (2, Some(3));
    Comparison {
        file: "jobs/tiny_job.pickle.xz".to_owned(),
        runs: vec![
            run(RECORDED, 8 * GIB, 4 * GIB),
            run("caching", 8 * GIB + 20 * MIB, 4 * GIB),
            gmlake,
            native,
            run("bound", 4 * GIB - MIB, 4 * GIB - MIB),
        ],
        reference: Some(RECORDED.to_owned()),
        span_us: 4_000_000,
        step_starts: vec![Moment { event: 0, time_us: 0 }],
        ..Comparison::default()
    }
}

fn written(format: ReportFormat, path: &str, comparisons: &[Comparison]) -> Vec<u8> {
    let mut out = Vec::new();
    let report = format.report(Path::new(path)).expect("a name with the right ending");
    report.write(comparisons, &mut out).expect("memory can be written");
    out
}

fn text(format: ReportFormat) -> String {
    String::from_utf8(written(format, "x", &[tiny()])).expect("reports are text")
}

#[test]
fn table() {
    insta::assert_snapshot!(table::comparison(&tiny(), true, table::Look::default()), @r#"
    jobs/tiny_job.pickle.xz, device 0: 4 events in 1 step, 4.00 s; on a device whose memory never runs out; saved: against recorded

    allocator                         peak      peak  utilization  fragmentation     saved   saved  OOMs  retries  driver  host/event
                                  reserved    active                                             %                  calls
    ----------------------------- --------- --------- ------------ -------------- --------- ------- ----- -------- ------- -----------
    recorded                         8 GiB     4 GiB       50.0 %         50.0 %       0 B   0.0 %     0        0   1,236           -
    caching                       8.02 GiB     4 GiB       49.9 %         50.1 %   -20 MiB  -0.2 %     0        0   1,236     42.0 ns
    gmlake fragment_limit=128MiB     5 GiB     4 GiB       80.0 %         20.0 %     3 GiB  37.5 %     0        0   1,236     42.0 ns
    native                           3 GiB     3 GiB      100.0 %          0.0 %         -       -     2        0   1,236     42.0 ns
    bound                         4.00 GiB  4.00 GiB      100.0 %          0.0 %  4.00 GiB  50.0 %     0        -       -           -

    driver calls                   mem_  mem_  address_  address_  create  release  map    set_  unmap
                                  alloc  free   reserve      free                        access
    ----------------------------- ------ ----- --------- --------- ------- -------- ---- ------- ------
    recorded                      1,234     2         0         0       0        0    0       0      0
    caching                       1,234     2         0         0       0        0    0       0      0
    gmlake fragment_limit=128MiB  1,234     2         0         0       0        0    0       0      0
    native                        1,234     2         0         0       0        0    0       0      0

    gmlake fragment_limit=128MiB: stitches 7, splits 1,000

    tiny_job: PyTorch held 8 GiB to serve 4 GiB (50.0 % used); gmlake fragment_limit=128MiB would need 5 GiB, 3 GiB (38 %) less; no allocator can go below 4.00 GiB.
    "#);
}

#[test]
fn markdown() {
    insta::assert_snapshot!(text(ReportFormat::Markdown), @r#"
    ### tiny\_job

    jobs/tiny\_job.pickle.xz, device 0: 4 events in 1 step, 4.00 s; on a device whose memory never runs out

    | allocator                     | peak reserved | peak active | utilization | fragmentation |    saved | saved % | OOMs | retries | driver calls | host/event |
    | ------------------------------| -------------:| -----------:| -----------:| -------------:| --------:| -------:| ----:| -------:| ------------:| ----------:|
    | recorded                      |         8 GiB |       4 GiB |      50.0 % |        50.0 % |      0 B |   0.0 % |    0 |       0 |        1,236 |          - |
    | caching                       |      8.02 GiB |       4 GiB |      49.9 % |        50.1 % |  -20 MiB |  -0.2 % |    0 |       0 |        1,236 |    42.0 ns |
    | gmlake fragment\_limit=128MiB |         5 GiB |       4 GiB |      80.0 % |        20.0 % |    3 GiB |  37.5 % |    0 |       0 |        1,236 |    42.0 ns |
    | native                        |         3 GiB |       3 GiB |     100.0 % |         0.0 % |        - |       - |    2 |       0 |        1,236 |    42.0 ns |
    | bound                         |      4.00 GiB |    4.00 GiB |     100.0 % |         0.0 % | 4.00 GiB |  50.0 % |    0 |       - |            - |          - |

    tiny\_job: PyTorch held 8 GiB to serve 4 GiB (50.0 % used); gmlake fragment\_limit=128MiB would need 5 GiB, 3 GiB (38 %) less; no allocator can go below 4.00 GiB.
    "#);
}

#[test]
fn csv() {
    insta::assert_snapshot!(text(ReportFormat::Csv), @r#"
    file,device,device_memory_bytes,allocator,options,events,first_oom_event,requested_peak_bytes,reserved_peak_bytes,active_peak_bytes,utilization,fragmentation,saved_bytes,saved_share,oom_count,alloc_retries,device_calls,host_ns_per_event,mem_alloc,mem_free,address_reserve,address_free,create,release,map,set_access,unmap
    jobs/tiny_job.pickle.xz,0,,recorded,,4,,4294967295,8589934592,4294967296,0.500000,0.500000,0,0.000000,0,0,1236,,1234,2,0,0,0,0,0,0,0
    jobs/tiny_job.pickle.xz,0,,caching,,4,,4294967295,8610906112,4294967296,0.498782,0.501218,-20971520,-0.002441,0,0,1236,42.00,1234,2,0,0,0,0,0,0,0
    jobs/tiny_job.pickle.xz,0,,gmlake,fragment_limit=128MiB,4,,4294967295,5368709120,4294967296,0.800000,0.200000,3221225472,0.375000,0,0,1236,42.00,1234,2,0,0,0,0,0,0,0
    jobs/tiny_job.pickle.xz,0,,native,,4,3,3221225471,3221225472,3221225472,1.000000,0.000000,,,2,0,1236,42.00,1234,2,0,0,0,0,0,0,0
    jobs/tiny_job.pickle.xz,0,,bound,,4,,4293918719,4293918720,4293918720,1.000000,0.000000,4296015872,0.500122,0,,,,1234,2,0,0,0,0,0,0,0
    "#);
}

#[test]
fn json() {
    let mut comparison = tiny();
    comparison.runs = vec![comparison.runs.swap_remove(2)];
    let json = written(ReportFormat::Json, "x", &[comparison]);
    insta::assert_snapshot!(String::from_utf8(json).unwrap(), @r#"
    {
      "schema_version": 1,
      "tool_version": "0.1.0",
      "runs": [
        {
          "file": "jobs/tiny_job.pickle.xz",
          "device": 0,
          "allocator": "gmlake",
          "options": [
            "fragment_limit=128MiB"
          ],
          "device_memory_bytes": null,
          "events": 4,
          "requested_peak_bytes": 4294967295,
          "active_peak_bytes": 4294967296,
          "reserved_peak_bytes": 5368709120,
          "utilization": 0.8,
          "fragmentation": 0.19999999999999996,
          "oom_count": 0,
          "first_oom_event": null,
          "alloc_retries": 0,
          "device_calls": {
            "mem_alloc": 1234,
            "mem_free": 2,
            "address_reserve": 0,
            "address_free": 0,
            "create": 0,
            "release": 0,
            "map": 0,
            "set_access": 0,
            "unmap": 0
          },
          "host_ns": 168,
          "allocator_counters": {
            "stitches": 7,
            "splits": 1000
          },
          "steps": [
            {
              "start_event": 0,
              "end_event": 4,
              "active_peak_bytes": 4294967296,
              "reserved_peak_bytes": 5368709120,
              "device_calls": {
                "mem_alloc": 0,
                "mem_free": 0,
                "address_reserve": 0,
                "address_free": 0,
                "create": 0,
                "release": 0,
                "map": 0,
                "set_access": 0,
                "unmap": 0
              },
              "allocator_counters": {
                "stitches": 7,
                "splits": 1000
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn a_plot_shows_every_allocator_by_name_and_is_the_same_each_time() {
    let svg = written(ReportFormat::Plot, "x.svg", &[tiny()]);
    assert_eq!(svg, written(ReportFormat::Plot, "x.svg", &[tiny()]));
    let svg = String::from_utf8(svg).unwrap();
    for text in ["tiny_job", "recorded", "caching", "gmlake", "native", "active", "2 OOMs", "GiB"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn plots_of_any_number_of_files_have_their_size() {
    for (files, height) in [(0, 900), (1, 900), (2, 1280), (3, 1920)] {
        let comparisons = vec![tiny(); files];
        let png = written(ReportFormat::Plot, "x.png", &comparisons);
        let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (1600, height), "{files} files");
    }
    let many = String::from_utf8(written(ReportFormat::Plot, "x.svg", &vec![tiny(); 5])).unwrap();
    assert_eq!(many.matches("tiny_job").count(), 5);
}

#[test]
fn a_plot_of_nothing_much_is_drawn_too() {
    let empty = Comparison { runs: vec![RunSummary::default()], ..Comparison::default() };
    for path in ["x.svg", "x.png"] {
        assert!(!written(ReportFormat::Plot, path, std::slice::from_ref(&empty)).is_empty());
    }
    assert!(ReportFormat::Plot.report(Path::new("x.pdf")).is_err());
}
