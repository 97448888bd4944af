//! Texts that PyTorch accepts and refuses, and what it makes of them.

use super::*;

fn parse(text: &str) -> Result<AllocConf, ConfError> {
    AllocConf::parse(text, TorchVersion::V2_11)
}

#[test]
fn every_option_is_understood() {
    let conf = parse(
        "max_split_size_mb:128, garbage_collection_threshold:0.6,expandable_segments:True,\
         roundup_power2_divisions:4,large_segment_size_mb:64,per_process_memory_fraction:0.5",
    )
    .unwrap();
    assert_eq!(conf.max_split_size, Some(128 * MIB));
    assert_eq!(conf.garbage_collection_threshold, 0.6);
    assert!(conf.expandable_segments);
    assert_eq!(conf.roundup_power2_divisions, [4; 16]);
    assert_eq!((conf.large_segment_size, conf.max_non_split_rounding), (64 * MIB, 64 * MIB));
    assert_eq!(conf.memory_fraction, Some(0.5));
    assert_eq!(parse("").unwrap(), AllocConf::default());
}

#[test]
fn division_lists_fill_as_in_2_11_and_as_before() {
    let text = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
    let expected = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8];
    assert_eq!(parse(text).unwrap().roundup_power2_divisions, expected);
    let older = AllocConf::parse(text, TorchVersion { major: 2, minor: 8 }).unwrap();
    assert_eq!(older.roundup_power2_divisions[10], 8);
}

#[test]
fn what_pytorch_refuses_is_refused() {
    for text in [
        "max_split_size_mb:10",
        "max_split_size_mb:x",
        "expandable_segments:true",
        "garbage_collection_threshold:1.5",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1",
        "large_segment_size_mb:10",
        "backend:other",
        "no_such_option:1",
        "max_split_size_mb",
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn of_an_accepted_text_what_is_known_is_kept() {
    let text = "max_split_size_mb:64, option_of_tomorrow:[1:2,3:4],expandable_segments:True";
    let (conf, error) = AllocConf::parse_known(text, TorchVersion::V2_11);
    assert_eq!((conf.max_split_size, conf.expandable_segments), (Some(64 * MIB), true));
    assert_eq!(conf.text, text);
    assert!(error.unwrap().to_string().contains("option_of_tomorrow"));
    assert_eq!(AllocConf::parse_known("", TorchVersion::V2_11), (AllocConf::default(), None));
    let (conf, error) = AllocConf::parse_known("no pairs", TorchVersion::V2_11);
    assert!(conf.max_split_size.is_none() && error.is_some());
}

#[test]
fn options_without_effect_are_kept_and_named() {
    let text = "graph_capture_record_stream_reuse:True,pinned_free_catch_all:True,\
                expandable_segments_reserve_by_class:[serving:0.25,ads:8G],\
                release_lock_on_hipmalloc:True,pinned_num_register_threads:8";
    let conf = AllocConf::parse(text, TorchVersion::NEWEST).unwrap();
    assert_eq!(conf.text, text);
    let named: Vec<_> = conf.without_effect.iter().map(String::as_str).collect();
    assert_eq!(named.len(), 5, "{named:?}");
    assert!(text.split(&[':', ','][..]).filter(|word| named.contains(word)).count() == 5);
}

/// What `_set_allocator_settings` of the wheels 2.9.1, 2.11.0, 2.12.1 and 2.13.0 did with each text.
#[test]
fn a_text_is_accepted_by_the_versions_that_accept_it() {
    let versions = [9, 11, 12, 13].map(|minor| TorchVersion { major: 2, minor });
    let truth = include_str!("accepted.csv");
    let (mut count, mut wrong) = (0, Vec::new());
    for line in truth.lines().skip(1) {
        let (verdicts, text) = line.split_once('\t').unwrap();
        for (verdict, version) in verdicts.chars().zip(versions) {
            let ours = AllocConf::parse(text, version);
            if ours.is_ok() != (verdict == 'y') {
                wrong.push(format!("{text:?} in {version}: {:?}", ours.err()));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty() && count > 250, "{count} texts: {wrong:#?}");
}

#[test]
fn numbers_are_read_as_far_as_they_go() {
    assert_eq!(parse("max_split_size_mb:128MB").unwrap().max_split_size, Some(128 * MIB));
    assert_eq!(parse("max_split_size_mb:128.9").unwrap().max_split_size, Some(128 * MIB));
    assert_eq!(
        parse("garbage_collection_threshold:0.8x").unwrap().garbage_collection_threshold,
        0.8
    );
    let spaced = parse("roundup_power2_divisions:[256:1, 512:2 , 1024:4, >:8]").unwrap();
    let list = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap();
    assert_eq!(spaced.roundup_power2_divisions, list.roundup_power2_divisions);
}

#[test]
fn another_backend_is_understood() {
    let conf = parse("max_split_size_mb:64,backend:cudaMallocAsync").unwrap();
    assert_eq!(conf.backend, Backend::CudaMallocAsync);
    assert_eq!(parse("backend:native").unwrap().backend, Backend::Native);
}

#[test]
fn a_refused_option_names_the_version_that_has_it() {
    let error = parse("throw_on_cudamalloc_oom:True").unwrap_err().to_string();
    assert!(
        error.ends_with("has no option \"throw_on_cudamalloc_oom\": it came with 2.12"),
        "{error}"
    );
    let newest = AllocConf::parse("throw_on_cudamalloc_oom:True", TorchVersion::NEWEST).unwrap();
    assert!(newest.throw_on_oom && newest.without_effect.is_empty());
    let error = parse("pinned_num_register_threads:3").unwrap_err().to_string();
    assert!(error.ends_with("is 3, but must be a power of two up to 128"), "{error}");
}

#[test]
fn what_is_typed_is_read_by_each_version() {
    let typed =
        TypedConf::new("export PYTORCH_ALLOC_CONF=throw_on_cudamalloc_oom:True", None).unwrap();
    assert!(typed.meaning().throw_on_oom && typed.read(TorchVersion::NEWEST).is_ok());
    assert!(typed.read(TorchVersion::V2_11).is_err());
    assert!(TypedConf::new("throw_on_cudamalloc_oom:True", Some(TorchVersion::V2_11)).is_err());
    let error = TypedConf::new("no_such:1", None).unwrap_err().to_string();
    assert!(error.contains("PyTorch 2.11 has no option \"no_such\""), "{error}");
}

#[test]
fn a_reserve_is_a_share_or_gib_and_anything_else_is_ignored() {
    let newest = TorchVersion { major: 2, minor: 15 };
    let reserve = |value| {
        let text = format!("expandable_segments_reserve:{value}");
        AllocConf::parse(&text, newest).unwrap().expandable_reserve
    };
    assert_eq!(reserve("0.5").unwrap().bytes(8 * GIB), 4 * GIB);
    assert_eq!(reserve("40G").unwrap().bytes(8 * GIB), 40 * GIB);
    assert_eq!([reserve("abc"), reserve("-1"), reserve("0"), reserve("G")], [None; 4]);
    let none = parse("per_process_memory_fraction:0.0").unwrap();
    assert_eq!(none.memory_fraction, Some(0.0));
}

#[test]
fn options_of_later_versions_are_unknown_to_earlier_ones() {
    let old = TorchVersion { major: 2, minor: 5 };
    assert!(AllocConf::parse("max_non_split_rounding_mb:64", old).is_err());
    assert!(AllocConf::parse("large_segment_size_mb:64", old).is_err());
    assert_eq!("2.11".parse(), Ok(TorchVersion::V2_11));
    assert_eq!("2.11.0+cu130".parse(), Ok(TorchVersion::V2_11));
    assert!("1.13".parse::<TorchVersion>().is_err());
}
