//! Messages as people paste them, and what is true of each.

use super::{Cause, Message, PARTS, REQUESTS, explain, outside};
use crate::units::{Bytes, GIB, MIB};

fn of(text: &str) -> Message {
    explain("log.txt", text)
}

fn causes(message: &Message) -> Vec<Cause> {
    message.findings.iter().map(|finding| finding.cause).collect()
}

/// This many hundredths of a GiB.
fn gib(hundredths: u64) -> Option<Bytes> {
    Some((hundredths as f64 / 100.0 * GIB as f64).round() as Bytes)
}

/// The second form, of PyTorch 2.1 and later, with these parts.
fn message(requested: &str, free: &str, processes: &str, allocated: &str, cached: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a \
         total capacity of 79.15 GiB of which {free} is free. {processes}Of the allocated memory \
         {allocated} is allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated. \
         If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
}

const SELF: &str = "Including non-PyTorch memory, this process has 79.00 GiB memory in use. ";

#[test]
fn every_form_of_a_message_has_the_same_numbers() {
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB \
        total capacity; 76.18 GiB already allocated; 12.25 MiB free; 77.60 GiB reserved in total \
        by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb";
    let new = message("20.00 MiB", "12.25 MiB", "", "76.18 GiB", "1.42 GiB");
    let hip = new.replace("CUDA out", "HIP out").replace("CUDA_ALLOC", "HIP_ALLOC");
    let typo = new.replace("capacity of", "capacty of");
    let wrapped = new.replace(". ", ".\n[rank0]: ");
    let graphs = new.replace(
        "76.18 GiB is allocated by PyTorch, and",
        "76.18 GiB is allocated by PyTorch, with 1.00 GiB allocated in private pools (e.g., CUDA \
         Graphs), and",
    );
    for text in [old, &new, &hip, &typo, &wrapped, &graphs] {
        let found = of(text);
        let numbers = found.numbers;
        assert_eq!(found.device, Some(0), "{text}");
        assert_eq!(numbers.requested_bytes, Some(20 * MIB), "{text}");
        assert_eq!(numbers.free_bytes, Some(12 * MIB + MIB / 4), "{text}");
        assert_eq!(numbers.total_bytes, gib(7915), "{text}");
        assert_eq!(numbers.allocated_bytes, gib(7618), "{text}");
        let cached = numbers.unallocated_bytes.expect("it is known");
        assert!(cached.abs_diff(gib(142).unwrap()) < 3, "{text}");
        let backend = if text == hip { "HIP" } else { "CUDA" };
        assert_eq!(found.backend.as_deref(), Some(backend), "{text}");
    }
    assert_eq!(of(&graphs).numbers.private_pool_bytes, Some(GIB));
    let xpu = "XPU out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 15.11 \
        GiB. Of the allocated memory 13.98 GiB is allocated by PyTorch, and 1.00 GiB is reserved \
        by \
        PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.";
    let found = of(xpu);
    assert_eq!((found.backend.as_deref(), found.device), (Some("XPU"), Some(1)));
    assert_eq!((found.numbers.free_bytes, found.numbers.total_bytes), (None, gib(1511)));
    // 13.98 and 2.00 are more than 15.11, whatever is cached.
    assert_eq!(causes(&found), [Cause::TooMuch]);
    assert!(found.findings[0].is_certain);
}

#[test]
fn the_asynchronous_backend_and_mps() {
    let text = "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out \
    of \
        memory)\nCurrently allocated     : 20.86 GiB\nRequested               : 10.12 GiB\nDevice \
        limit            : 24.00 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by \
        user-supplied memory fraction)\n                        : 17179869184.00 GiB\n";
    let found = of(text);
    assert_eq!((found.numbers.allocated_bytes, found.numbers.free_bytes), (gib(2086), Some(0)));
    assert_eq!((found.numbers.allowed_bytes, found.device), (None, Some(0)));
    assert!(found.findings[0].is_certain && found.findings[0].cause == Cause::TooMuch);
    let unclear = of(&text.replace("20.86", "4.86"));
    assert_eq!(causes(&unclear), [Cause::OtherProcesses]);
    assert!(!unclear.findings[0].is_certain);
    let mps = "RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GiB, other \
    allocations: \
        2.29 GiB, max allowed: 6.77 GiB). Tried to allocate 1024.00 MiB on private pool.";
    let found = of(mps);
    assert_eq!((found.backend.as_deref(), found.numbers.allowed_bytes), (Some("MPS"), gib(677)));
    assert!(!found.advice.iter().any(|text| text.contains("cuda")), "{:?}", found.advice);
    let jax =
        of("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.");
    assert_eq!(causes(&jax), [Cause::OtherFramework]);
    assert!(!jax.advice.iter().any(|text| text.contains("torch")), "{:?}", jax.advice);
}

#[test]
fn the_cause_is_what_the_figures_leave() {
    let frag = message("2.00 GiB", "100.00 MiB", SELF, "40.00 GiB", "38.00 GiB");
    assert_eq!(causes(&of(&frag)), [Cause::Fragmentation]);
    assert!(!of(&frag).findings[0].is_certain, "only a run can tell");
    // Nothing is left, whatever the allocator does.
    let full = of(&message("2.00 GiB", "100.00 MiB", SELF, "77.00 GiB", "1.00 GiB"));
    assert_eq!(causes(&full), [Cause::TooMuch]);
    assert!(full.findings[0].is_certain && full.advice.iter().any(|text| text.contains("predict")));
    assert!(!full.advice.iter().any(|text| text.contains("expandable")));
    let limit = "39.58 GiB allowed; ";
    let limited = of(&message("2.00 GiB", "30.00 GiB", limit, "38.00 GiB", "1.00 GiB"));
    assert_eq!(causes(&limited)[0], Cause::Limit);
    let others = "Process 7 has 40.00 GiB memory in use. Including non-PyTorch memory, this \
    process has 38.90 GiB memory in use. ";
    let shared = of(&message("2.00 GiB", "250.00 MiB", others, "38.00 GiB", "400.00 MiB"));
    assert_eq!(causes(&shared), [Cause::OtherProcesses]);
    assert_eq!(shared.numbers.others_bytes, Some(40 * GIB));
    assert!(shared.findings[0].explanation.contains("process 7 holds 40 GiB"));
    // A process of another name that holds what PyTorch holds is this one, in a container.
    let namespace = "Process 3131906 has 79.00 GiB memory in use. ";
    let found = of(&message("344.00 MiB", "2.00 MiB", namespace, "77.97 GiB", "204.56 MiB"));
    assert_eq!(found.numbers.process_bytes, Some(79 * GIB));
    assert_eq!(causes(&found), [Cause::TooMuch]);
    // Where the driver does not know, it says 2^64 - 1.
    let absurd = "Process 7 has 17179869184.00 GiB memory in use. ";
    let found = of(&message("344.00 MiB", "2.00 MiB", absurd, "77.97 GiB", "204.56 MiB"));
    assert_eq!((found.numbers.process_bytes, causes(&found)), (None, vec![Cause::TooMuch]));
}

#[test]
fn memory_that_was_free_is_no_fragmentation() {
    let found = of(&message("2.00 MiB", "20.00 GiB", "", "40.00 GiB", "15.00 GiB"));
    assert_eq!(causes(&found), [Cause::FreeYetRefused]);
    let words = &found.findings[0].explanation;
    assert!(words.contains("Not fragmentation") && words.contains("No memory fraction"), "{words}");
    // A part of the message may have been left out that names a limit.
    let cut = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.15 \
               GiB of which 20.00 GiB is free. Of the";
    let found = of(cut);
    assert_eq!(causes(&found), [Cause::FreeYetRefused]);
    assert!(!found.findings[0].explanation.contains("No memory fraction"));
    // As much free as requested, as far as the figures tell: nothing is said of it.
    let equal = of(&message("2.00 GiB", "2.00 GiB", SELF, "75.00 GiB", "200.00 MiB"));
    assert!(!causes(&equal).contains(&Cause::FreeYetRefused));
}

#[test]
fn what_is_not_known_is_not_said() {
    for text in
        ["CUDA out of memory. Tried to allocate ...", "is reserved by PyTorch but unallocated"]
    {
        assert_eq!(causes(&of(text)), [Cause::Unknown], "{text}");
    }
    let huge = of("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.");
    assert_eq!(causes(&huge), [Cause::WrongSize]);
    let driver = of("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be");
    assert_eq!(causes(&driver), [Cause::OutsidePyTorch]);
    let host = of("RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't \
                   allocate memory: you tried to allocate 137438953472 bytes.");
    assert_eq!(causes(&host), [Cause::HostMemory]);
    assert!(!host.advice.iter().any(|text| text.contains("_record_memory_history")));
    // Of a message without its beginning the request is not known: a device that others have filled is.
    let part = "(GPU 0; 15.75 GiB total capacity; 79.11 MiB already allocated; 3.62 MiB free; \
                86.00 MiB reserved in total by PyTorch)";
    assert_eq!(causes(&of(part)), [Cause::OtherProcesses]);
    assert!(!of(part).findings[0].explanation.contains("request"));
    assert_eq!(causes(&of(&part.replace("3.62 MiB", "9.62 GiB"))), [Cause::Unknown]);
}

/// A text is found by the words that it is explained by.
#[test]
fn what_is_explained_is_found() {
    let outside = outside::WORDS.iter().map(|(words, ..)| *words);
    for words in outside.chain(REQUESTS).chain(PARTS) {
        let text = format!("epoch 3\n{words} 1.00 GiB\n");
        assert!(crate::trace::text::find(text.as_bytes()).is_some(), "{words}");
    }
    for bare in ["torch.OutOfMemoryError", "CUDA driver error: out of memory", "Out of memory"] {
        let text = crate::trace::text::find(bare.as_bytes()).expect(bare);
        assert_eq!(causes(&of(&text)), [Cause::Unknown], "{bare}");
    }
    let both = format!("avoids out of memory\n{}CUDA error: out of memory", "x\n".repeat(100_000));
    let found = crate::trace::text::find(both.as_bytes()).expect("it is found");
    assert!(found.contains("CUDA error"), "the words that say more count");
}

#[test]
fn one_of_several_processes_may_be_this_one() {
    let named = "Process 1 has 40.00 GiB memory in use. Process 2 has 38.00 GiB memory in use. ";
    let found = of(&message("2.00 GiB", "1.00 GiB", named, "36.00 GiB", "512.00 MiB"));
    assert_eq!(found.numbers.others_bytes, Some(38 * GIB));
    assert!(found.findings[0].explanation.starts_with("Other processes held at least 38 GiB"));
    // A driver that counts nothing for this process is not believed.
    let nothing = "Including non-PyTorch memory, this process has 0 bytes memory in use. ";
    let found = of(&message("2.00 GiB", "1.00 GiB", nothing, "77.00 GiB", "512.00 MiB"));
    assert_eq!((found.numbers.process_bytes, causes(&found)), (None, vec![Cause::TooMuch]));
}

#[test]
fn a_server_that_refuses_to_start_is_told_what_its_share_is() {
    let found = of("ValueError: No available memory for the cache blocks. Try increasing ...");
    assert_eq!(causes(&found), [Cause::ServerShare]);
    assert!(found.advice.iter().any(|text| text.contains("predict --serve")));
}

#[test]
fn without_memory_of_the_host_a_driver_refuses_what_the_gpu_has() {
    let host = "[enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:81] data. DefaultCPUAllocator: \
                not enough memory: you tried to allocate 13107200 bytes.\n";
    let free = message("20.00 MiB", "30.00 GiB", "", "1.00 GiB", "1.00 MiB");
    let found = of(&format!("{host}{free}"));
    assert_eq!(causes(&found), [Cause::HostMemory, Cause::FreeYetRefused]);
    assert_eq!(found.findings[0].bytes, Some(13_107_200));
    let full = message("2.00 GiB", "100.00 MiB", SELF, "77.00 GiB", "1.00 GiB");
    assert_eq!(causes(&of(&format!("{full}\n{host}"))), [Cause::TooMuch, Cause::HostMemory]);
    assert_eq!(causes(&of(host)), [Cause::HostMemory]);
}

#[test]
fn an_answer_names_the_programs_of_the_platform() {
    let cuda = message("2.00 MiB", "20.00 GiB", "", "40.00 GiB", "15.00 GiB");
    let words = |text: &str| {
        let found = of(text);
        let explanations = found.findings.iter().map(|finding| finding.explanation.clone());
        explanations.chain(found.advice.clone()).collect::<Vec<_>>().join("\n")
    };
    assert!(words(&cuda).contains("nvidia-smi for MIG") && words(&cuda).contains("torch.cuda."));
    let hip = words(&cuda.replace("CUDA out", "HIP out"));
    assert!(hip.contains("amd-smi for other") && hip.contains("torch.cuda."), "{hip}");
    let xpu = words(&cuda.replace("CUDA out", "XPU out"));
    assert!(xpu.contains("xpu-smi for other") && xpu.contains("torch.xpu.memory._dump"), "{xpu}");
    for text in [hip, xpu] {
        assert!(
            !["nvidia", "MIG", "CUDA graph"].iter().any(|words| text.contains(words)),
            "{text}"
        );
    }
}

#[test]
fn a_log_names_the_line_and_counts_the_messages() {
    let one = message("2.00 GiB", "100.00 MiB", SELF, "77.00 GiB", "1.00 GiB");
    let stack = "Traceback (most recent call last):\n  File \"/me/train.py\", line 9, in step\n";
    let log = format!("epoch 1\n{stack}{one}\nagain\n{one}\n");
    let found = of(&log);
    let line = found.line.as_ref().expect("a stack");
    assert_eq!(
        (line.file.as_str(), line.line, line.function.as_str()),
        ("/me/train.py", 9, "step")
    );
    assert_eq!((found.more, found.numbers.requested_bytes), (1, Some(2 * GIB)));
    // Loggers print the message first, and the stack behind it.
    let found = of(&format!("[ERROR] failed: {one}\n{stack}{one}\n"));
    assert_eq!(found.line.map(|line| line.line), Some(9));
}

#[test]
fn a_summary_tells_its_peaks_and_no_more() {
    let head = "|===|\n| PyTorch CUDA memory summary, device ID 0 |\n| CUDA OOMs: 1 | cudaMalloc \
                retries: 2 |\n";
    let found = of(head);
    assert_eq!(causes(&found), [Cause::Unknown]);
    assert_eq!(found.summary.as_ref().and_then(|summary| summary.retries), Some(2));
    let row = |name: &str, now: u64, peak: u64| {
        format!("| {name} | {now} MiB | {peak} MiB | 99999 MiB | 99999 MiB |\n")
    };
    let rows = |peak: u64| {
        let reserved = row("GPU reserved memory", 800, 1000);
        let pieces = row("Non-releasable memory", 100, 300);
        format!("{head}{}{reserved}{pieces}", row("Allocated memory", 500, peak))
    };
    assert_eq!(causes(&of(&rows(600))), [Cause::Fragmentation]);
    assert_eq!(causes(&of(&rows(990))), [Cause::TooMuch]);
    assert!(of(&rows(600)).findings.iter().all(|finding| !finding.is_certain));
    for text in [&*rows(600), head] {
        let none = of(&text.replace("OOMs: 1", "OOMs: 0"));
        assert_eq!(causes(&none), [Cause::Unknown]);
        assert!(none.findings[0].explanation.starts_with("No request had failed"), "{text}");
    }
}
