//! The times of events on the page.

use crate::page::{browser, report, stacks, state_words, trace};

#[test]
fn the_time_of_an_event_is_that_of_the_recording() {
    let Some(mut browser) = browser() else { return };
    let short = report("short.html", &[trace("streams")], &[]);
    // The peaks of `inspect`.
    for (page, peak, time) in [(&*short, "500", "591 ms"), (stacks(), "43,977", "7.15 s")] {
        browser.open(page, 1280, 900);
        let words = state_words(&mut browser);
        assert!(words.contains(peak) && words.contains(&format!("about {time}")), "{words}");
    }
    browser.evaluate(
        "(() => { const box = document.querySelector('[data-chart=state] input.event');
           box.value = box.max;
           box.dispatchEvent(new Event('change')); })()",
    );
    let words = state_words(&mut browser);
    assert!(words.contains("79,706") && words.contains("about 16.6 s"), "{words}");
}
