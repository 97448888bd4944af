//! A headless Chromium, driven over a pipe in the DevTools protocol: no port, no driver program, no further crate.
//!
//! ```text
//!   us ── stdin ──▶ sh: 3<&0 ──▶ chromium --remote-debugging-pipe        each message is JSON, ended by a zero byte
//!   us ◀─ stdout ── sh: 4>&1 ◀──
//! ```

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Patience with the browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// Redirects for the two pipes; our own end of them must not stay open in the browser as input and output.
const LAUNCH: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
];

/// Where Chromium is, if it is on this machine: what `CHROMIUM` names, else the first of its usual names in `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    session: String,
    calls: u64,
    /// Width of its window.
    pub(crate) width: u64,
    /// What went wrong on the page: errors and warnings on the console, exceptions, anything it could not load.
    pub(crate) errors: Vec<String>,
    /// Addresses that the page asked for.
    pub(crate) requests: Vec<String>,
    /// The profile of this browser; goes with it.
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser.
    pub(crate) fn start(chromium: &Path) -> Self {
        let profile = tempfile::tempdir().expect("there is a place for temporary files");
        let mut child = Command::new("sh")
            .args(["-c", LAUNCH])
            .arg(chromium)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(FLAGS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let output = child.stdout.take().expect("it is piped");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let (session, calls, width) = (String::new(), 0, 0);
        let (errors, requests) = (Vec::new(), Vec::new());
        let mut browser = Self {
            child,
            input,
            messages,
            session,
            calls,
            width,
            errors,
            requests,
            _profile: profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let targets = self.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().expect("a list").clone();
        let page = targets.iter().find(|target| target["type"] == "page").expect("there is a page");
        let attached = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", attached);
        self.session = attached["sessionId"].as_str().expect("a name").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the protocol, and takes note of all that happens meanwhile.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let input = self.input.as_mut().expect("it is open until the end");
        input.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.messages.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" if params["type"] != "log" => {
                self.errors.push(params["args"].to_string());
            }
            "Runtime.exceptionThrown" => {
                self.errors.push(params["exceptionDetails"].to_string());
            }
            "Log.entryAdded" => self.errors.push(params["entry"].to_string()),
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or("?").to_owned());
            }
            _ => {}
        }
    }

    /// Opens a file in a window of this size, and waits until it is drawn.
    pub(crate) fn open(&mut self, file: &Path, width: u64, height: u64) {
        self.width = width;
        // A mobile one would grow with what is in it.
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        for _ in 0..600 {
            let ready = "document.readyState === 'complete' && location.protocol === 'file:' \
                         && [...document.querySelectorAll('[data-chart]')]
                           .every((node) => node.dataset.state)";
            if self.evaluate(ready) == json!(true) {
                return self.settle();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{url} is not loaded");
    }

    /// Waits until what was asked for is drawn.
    pub(crate) fn settle(&mut self) {
        let frames =
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
        for _ in 0..2 {
            self.evaluate(frames);
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// The value of an expression that is a number.
    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        self.evaluate(expression).as_f64().unwrap_or_else(|| panic!("{expression} is no number"))
    }

    /// The value of an expression that is text.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_owned()
    }

    /// Moves, presses or releases the mouse; `kind` as the protocol names it.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let params = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let down = json!({"type": "keyDown", "key": key, "text": text});
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    /// A picture of an element, as PNG; `html` is the whole page.
    pub(crate) fn screenshot(&mut self, selector: &str) -> Vec<u8> {
        let place = |of: &str| {
            format!("(box => {of})(document.querySelector('{selector}').getBoundingClientRect())")
        };
        let (x, y) = (place("box.left + scrollX"), place("box.top + scrollY"));
        let [x, y] = [x, y].map(|script| self.evaluate(&script));
        let [width, height] = [place("box.width"), place("box.height")].map(|s| self.evaluate(&s));
        let clip = json!({"x": x, "y": y, "width": width, "height": height, "scale": 1});
        let params = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", params);
        let text = picture["data"].as_str().expect("base64");
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text).expect("base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser goes when its pipe is closed; if not, it is ended.
        drop(self.input.take());
        for _ in 0..40 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
