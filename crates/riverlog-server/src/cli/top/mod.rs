//! `riverlog top`: topics, groups and brokers as they are now, drawn again and again.

mod look;
mod screen;

use std::io::{IsTerminal, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, queue};

use super::output::{Output, envelope, yaml_of};
use super::values::duration;
use super::{Context, interrupt};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use look::{Look, Shown};
use screen::{Line, Part, Style, View};

/// How soon a wait notices a key, a new size of the window or Ctrl-C.
const NAP: Duration = Duration::from_millis(50);
/// Lines that are drawn where a terminal doesn't say its size.
const SIZE: (u16, u16) = (80, 24);

#[derive(Clone, Debug, Args)]
pub(crate) struct Top {
    /// From one look to the next
    #[arg(short, long, default_value = "2s", value_parser = duration, value_name = "TIME")]
    interval: Duration,
    /// Internal topics too
    #[arg(long)]
    internal: bool,
    /// Look twice, an interval apart, and end
    #[arg(long)]
    once: bool,
}

/// What the screen waits for.
enum Event {
    Looked(Box<Result<Look, Failure>>),
    Key(Key),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Tab,
    Order,
    Pause,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
}

impl Top {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        interrupt::watch();
        let mut client = context.client()?;
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let drawn = terminal && !self.once && context.output.is_none();
        let first = Look::take(&mut client, self.internal)?;
        match drawn {
            true => self.draw(client, first),
            false => self.print(client, first, context.output),
        }
    }

    /// A text, or a document, for each look.
    fn print(
        &self,
        mut client: Client,
        first: Look,
        output: Option<Output>,
    ) -> Result<(), Failure> {
        let mut before = first;
        while pause(self.interval) {
            let now = Look::take(&mut client, self.internal)?;
            let shown = Shown::new(Some(&before), &now);
            let data = serde_json::to_value(&shown).unwrap_or_default();
            let text = match output {
                Some(Output::Json) => format!("{:#}\n", envelope("top", &data)),
                Some(Output::Ndjson) => format!("{data}\n"),
                Some(Output::Yaml) => yaml_of(&envelope("top", &data)),
                Some(Output::Name) => {
                    let names = shown.topics.iter().map(|t| format!("{}\n", t.topic));
                    names.collect()
                }
                Some(Output::Table | Output::Wide) | None => {
                    let lines = screen::lines(&shown, &View::default(), usize::MAX, None);
                    let line = |(_, line): Line| format!("{line}\n");
                    lines.into_iter().map(line).collect()
                }
            };
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .map_err(|e| Failure::stdout(&e))?;
            if self.once {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    fn draw(&self, client: Client, first: Look) -> Result<(), Failure> {
        let (send, events) = mpsc::channel();
        let (ask, asked) = mpsc::channel();
        let looker = Looker {
            client,
            internal: self.internal,
            interval: self.interval,
        };
        let threads = [
            std::thread::Builder::new().name("look".to_owned()).spawn({
                let send = send.clone();
                move || looker.run(&asked, &send)
            }),
            std::thread::Builder::new()
                .name("keys".to_owned())
                .spawn(move || keys(&send)),
        ];
        for thread in threads {
            thread.map_err(|e| {
                Failure::new(Exit::Bug, "a thread can't be started").why(e.to_string())
            })?;
        }
        let mut screen = Screen::open().map_err(|e| screen_failure(&e))?;
        screen
            .show(first, &events, &ask)
            .map_err(|e| screen_failure(&e))
    }
}

fn screen_failure(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Finding, "the terminal can't be drawn on")
        .why(error.to_string())
        .hint("`riverlog top --once` prints once, without a terminal")
}

/// Waits; false when the user wants an end.
fn pause(time: Duration) -> bool {
    let until = Instant::now() + time;
    while !interrupt::asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
    }
    false
}

/// Looks at the cluster again and again, so that the screen never waits for a broker.
struct Looker {
    client: Client,
    internal: bool,
    interval: Duration,
}

impl Looker {
    /// Looks until nobody listens; a word through `asked` is each next look.
    fn run(mut self, asked: &Receiver<()>, send: &Sender<Event>) {
        loop {
            std::thread::sleep(self.interval);
            if asked.recv().is_err() {
                return;
            }
            let looked = Look::take(&mut self.client, self.internal);
            if looked.is_err() {
                // A connection that broke is no use for the next try.
                self.client.reset();
            }
            if send.send(Event::Looked(Box::new(looked))).is_err() {
                return;
            }
        }
    }
}

/// Reads the keyboard until it ends.
fn keys(send: &Sender<Event>) {
    let mut bytes = [0; 64];
    let mut input = std::io::stdin().lock();
    loop {
        let read = match input.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        for key in keys_of(bytes.get(..read).unwrap_or_default()) {
            if send.send(Event::Key(key)).is_err() {
                return;
            }
        }
    }
}

/// The keys that a terminal sent at once.
fn keys_of(mut bytes: &[u8]) -> Vec<Key> {
    const SEQUENCES: &[(&[u8], Key)] = &[
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"\x1b[H", Key::Home),
        (b"\x1b[1~", Key::Home),
    ];
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let sequence = SEQUENCES.iter().find(|(s, _)| bytes.starts_with(s));
        if let Some((sequence, key)) = sequence {
            keys.push(*key);
            bytes = bytes.get(sequence.len()..).unwrap_or_default();
            continue;
        }
        match first {
            // Escape alone; a sequence that isn't known is passed over.
            0x1b if rest.is_empty() => keys.push(Key::Quit),
            0x1b => return keys,
            b'q' | b'Q' | 3 | 4 => keys.push(Key::Quit),
            b'\t' => keys.push(Key::Tab),
            b's' => keys.push(Key::Order),
            b' ' | b'p' => keys.push(Key::Pause),
            b'k' => keys.push(Key::Up),
            b'j' => keys.push(Key::Down),
            b'g' => keys.push(Key::Home),
            _ => {}
        }
        bytes = rest;
    }
    keys
}

/// The terminal while it is drawn on; dropped it is as it was before.
struct Screen {
    view: View,
    /// What is on the screen, so that only what changed is drawn.
    drawn: Vec<Line>,
    size: (u16, u16),
}

impl Screen {
    fn open() -> std::io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen {
            view: View::default(),
            drawn: Vec::new(),
            size: (0, 0),
        };
        let mut out = std::io::stdout().lock();
        queue!(out, EnterAlternateScreen, DisableLineWrap, cursor::Hide)?;
        out.flush()?;
        Ok(screen)
    }

    fn show(
        &mut self,
        first: Look,
        events: &Receiver<Event>,
        ask: &Sender<()>,
    ) -> std::io::Result<()> {
        let mut shown = Shown::new(None, &first);
        let mut before = first;
        // Nobody looks any more: then the last look stays.
        let mut waiting = ask.send(()).is_ok();
        loop {
            self.draw(&shown)?;
            match events.recv_timeout(NAP) {
                Ok(Event::Key(Key::Quit)) => return Ok(()),
                Ok(Event::Key(key)) => self.press(key, &shown),
                Ok(Event::Looked(looked)) => {
                    waiting = false;
                    match *looked {
                        Ok(now) => {
                            shown = Shown::new(Some(&before), &now);
                            before = now;
                            self.view.trouble = None;
                        }
                        Err(why) => {
                            let reason = why.reason().unwrap_or("no reason was told");
                            self.view.trouble =
                                Some(format!("{} ({reason}); trying again", why.what()));
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if interrupt::asked() {
                return Ok(());
            }
            if !waiting && !self.view.paused {
                waiting = ask.send(()).is_ok();
            }
        }
    }

    fn press(&mut self, key: Key, shown: &Shown) {
        let view = &mut self.view;
        let page = usize::from(self.size.1).saturating_sub(8).max(1);
        let rows = match view.part {
            Part::All => 0,
            Part::Topics => shown.topics.len(),
            Part::Groups => shown.groups.len(),
            Part::Brokers => shown.brokers.len(),
        };
        let last = rows.saturating_sub(page);
        match key {
            Key::Quit => {}
            Key::Tab => {
                view.skip = 0;
                view.part = match view.part {
                    Part::All => Part::Topics,
                    Part::Topics => Part::Groups,
                    Part::Groups => Part::Brokers,
                    Part::Brokers => Part::All,
                };
            }
            Key::Order => view.order = view.order.next(),
            Key::Pause => view.paused = !view.paused,
            Key::Up => view.skip = view.skip.min(last).saturating_sub(1),
            Key::Down => view.skip = (view.skip + 1).min(last),
            Key::PageUp => view.skip = view.skip.min(last).saturating_sub(page),
            Key::PageDown => view.skip = (view.skip + page).min(last),
            Key::Home => view.skip = 0,
        }
    }

    /// Draws what differs from what is there.
    fn draw(&mut self, shown: &Shown) -> std::io::Result<()> {
        let size = terminal::size().unwrap_or(SIZE);
        let mut out = std::io::stdout().lock();
        if size != self.size {
            queue!(out, Clear(ClearType::All))?;
            self.drawn.clear();
            self.size = size;
        }
        let (width, height) = (usize::from(size.0), usize::from(size.1));
        let lines = screen::lines(shown, &self.view, width, Some(height));
        for (y, line) in (0..).zip(&lines) {
            if self.drawn.get(usize::from(y)) == Some(line) {
                continue;
            }
            let (style, text) = line;
            queue!(out, cursor::MoveTo(0, y))?;
            match style {
                Style::Plain => {}
                Style::Strong => queue!(out, SetAttribute(Attribute::Bold))?,
                Style::Soft => queue!(out, SetForegroundColor(Color::DarkGrey))?,
                Style::Bad => queue!(out, SetForegroundColor(Color::Red))?,
            }
            out.write_all(text.as_bytes())?;
            queue!(
                out,
                ResetColor,
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        self.drawn = lines;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout().lock();
        // The terminal has gone: nothing is left to be tidied.
        let _ = queue!(out, LeaveAlternateScreen, EnableLineWrap, cursor::Show);
        let _ = out.flush();
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_as_bytes_and_as_sequences() {
        assert_eq!(
            keys_of(b"\x1b[A\x1b[6~s"),
            [Key::Up, Key::PageDown, Key::Order]
        );
        assert_eq!(keys_of(b"\x1b"), [Key::Quit]);
        assert_eq!(keys_of(b"\x03"), [Key::Quit]);
        // One that means nothing here doesn't quit.
        assert_eq!(keys_of(b"\x1b[15~"), []);
        assert_eq!(keys_of(b"xyz\t "), [Key::Tab, Key::Pause]);
    }
}
