//! Ctrl-C for commands that run on: the first one asks them to end, the second ends them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Exit;

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C and SIGTERM are noted instead of ending the process.
pub(crate) fn watch() {
    let wait = || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        else {
            return;
        };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate)) = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::terminate()),
            ) else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if ASKED.swap(true, Ordering::AcqRel) {
                    std::process::exit(Exit::Interrupted as i32);
                }
            }
        });
    };
    // Without the thread Ctrl-C does what it does by default.
    let _ = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait);
}

/// Whether the command should end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Acquire)
}
