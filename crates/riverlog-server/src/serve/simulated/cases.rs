//! One connection at a time in trouble, and the others who must not notice.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::api_versions_request::ApiVersionsRequest;
use riverlog_wire::messages::metadata_request::MetadataRequest;
use tokio::time::{Instant, sleep, timeout};

use super::client::{Link, fetch, hello, produce, values};
use super::{IDLE, MAX_FRAME, SERVER, Story};
use crate::serve::connection::STALL;

/// Whether `holds` comes true within a time.
async fn within(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    holds()
}

#[test]
fn requests_that_dribble_and_stick_together_are_answered_in_order() {
    for (seed, most) in [(1, 1), (2, 7), (3, 100), (4, 1_460), (5, 1 << 20)] {
        let mut story = Story::new(seed, most);
        story.client("client", async move |_| {
            let mut link = Link::open_patiently(seed, most).await;
            link.create("t", 1).await?;
            // All at once: the second batch is answered after the first, the fetch after both.
            let mut all = link.frame(3, &hello());
            all.extend(link.produce_frame(&produce("t", 0, None, &["a", "b"])));
            all.extend(link.frame(9, &MetadataRequest::default()));
            all.extend(link.produce_frame(&produce("t", 0, None, &[&"c".repeat(500)])));
            link.send(&all).await?;
            let apis = link.answer::<ApiVersionsRequest>(3).await?;
            assert_eq!(apis.error_code, ErrorCode::NONE);
            assert_eq!(link.produced().await?.base_offset, 0);
            let metadata = link.answer::<MetadataRequest>(9).await?;
            assert_eq!(metadata.brokers[0].host, SERVER);
            assert_eq!(link.produced().await?.base_offset, 2);
            let part = link.fetch(&fetch("t", 0, 1, Duration::ZERO)).await?;
            let expected = vec![(1, "b".to_owned()), (2, "c".repeat(500))];
            assert_eq!(values(&part, 1), expected);
            Ok(())
        });
        story.play();
    }
}

#[test]
fn a_frame_that_is_too_long_or_no_frame_ends_its_connection_only() {
    let mut story = Story::new(6, 9);
    story.client("client", async move |machine| {
        let mut good = Link::open_patiently(6, 9).await;
        good.create("t", 1).await?;
        let too_long = (MAX_FRAME as u32 + 1).to_be_bytes();
        for bytes in [&too_long[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 40]] {
            let mut bad = Link::open(7, 3).await?;
            // The end may come before the last piece is out.
            let _ = bad.send(bytes).await;
            let closed = timeout(Duration::from_secs(1), bad.until_closed()).await;
            assert!(closed.is_ok(), "{bytes:?} ends a connection");
        }
        assert!(within(Duration::from_secs(1), || machine.connected() == 1).await);
        let stored = good.produce(&produce("t", 0, None, &["x"])).await?;
        assert_eq!(stored.base_offset, 0);
        Ok(())
    });
    story.play();
}

#[test]
fn a_client_that_stalls_in_a_frame_or_says_nothing_is_closed_in_time() {
    let mut story = Story::with(8, 50, |builder| {
        builder.tick_duration(Duration::from_millis(5));
    });
    story.client("stalling", async move |_| {
        let mut link = Link::open_patiently(8, 5).await;
        let frame = link.frame(3, &hello());
        let begun = Instant::now();
        link.send(&frame[..frame.len() - 1]).await?;
        link.until_closed().await;
        let took = begun.elapsed();
        let least = IDLE.min(STALL);
        assert!(
            took >= least && took < least + Duration::from_secs(2),
            "{took:?}"
        );
        Ok(())
    });
    story.client("silent", async move |_| {
        let mut link = Link::open_patiently(9, 5).await;
        let begun = Instant::now();
        link.until_closed().await;
        let took = begun.elapsed();
        assert!(
            took >= IDLE && took < IDLE + Duration::from_secs(2),
            "{took:?}"
        );
        Ok(())
    });
    // Each byte is a sign of life.
    story.client("slow", async move |_| {
        let mut link = Link::open_patiently(10, 1).await;
        let frame = link.frame(3, &hello());
        for byte in &frame {
            link.send(std::slice::from_ref(byte)).await?;
            sleep(Duration::from_secs(4)).await;
        }
        link.answer::<ApiVersionsRequest>(3).await?;
        Ok(())
    });
    story.play();
}

#[test]
fn a_fetch_is_parked_for_as_long_as_it_says_however_idle_the_connection() {
    let mut story = Story::with(11, 50, |builder| {
        builder.tick_duration(Duration::from_millis(5));
    });
    story.client("client", async move |machine| {
        let mut link = Link::open_patiently(11, 50).await;
        link.create("t", 1).await?;
        let wait = IDLE * 3;
        let begun = Instant::now();
        let part = link.fetch(&fetch("t", 0, 0, wait)).await?;
        let took = begun.elapsed();
        assert!(
            took >= wait && took < wait + Duration::from_secs(1),
            "{took:?}"
        );
        assert!(values(&part, 0).is_empty());
        // And one that is parked is answered by the first record.
        let mut other = Link::open(12, 50).await?;
        let asked = link.fetch_frame(&fetch("t", 0, 0, wait));
        link.send(&asked).await?;
        assert!(within(Duration::from_secs(1), || machine.gauge("parked") > 0.0).await);
        other.produce(&produce("t", 0, None, &["x"])).await?;
        let got = timeout(Duration::from_secs(1), link.fetched()).await;
        assert!(got.expect("woken by the record")? > 0);
        Ok(())
    });
    story.play();
}

#[test]
fn who_leaves_while_parked_leaves_nothing() {
    let mut story = Story::new(13, 20);
    story.client("client", async move |machine| {
        let mut good = Link::open_patiently(13, 20).await;
        good.create("t", 1).await?;
        for round in 0..20 {
            let mut leaving = Link::open(round, 20).await?;
            let asked = leaving.fetch_frame(&fetch("t", 0, 0, Duration::from_secs(20)));
            leaving.send(&asked).await?;
            sleep(Duration::from_millis(20)).await;
        }
        assert!(
            within(Duration::from_secs(1), || machine.connected() == 1).await,
            "{} connections",
            machine.connected()
        );
        // Nobody takes the answers: their places are free at once, long before their time is over, and without a record.
        assert!(within(Duration::from_secs(1), || machine.gauge("parked") == 0.0).await);
        good.produce(&produce("t", 0, None, &["x"])).await?;
        let part = good.fetch(&fetch("t", 0, 0, Duration::ZERO)).await?;
        assert_eq!(values(&part, 0), [(0, "x".to_owned())]);
        Ok(())
    });
    story.play();
}

#[test]
fn a_link_that_breaks_without_a_word_is_let_go_of() {
    let mut story = Story::with(14, 50, |builder| {
        builder.tick_duration(Duration::from_millis(5));
    });
    story.client("lost", async move |machine| {
        let mut link = Link::open_patiently(14, 50).await;
        link.create("t", 1).await?;
        let asked = link.fetch_frame(&fetch("t", 0, 0, Duration::from_secs(10)));
        link.send(&asked).await?;
        assert!(within(Duration::from_secs(1), || machine.gauge("parked") > 0.0).await);
        turmoil::partition("lost", SERVER);
        // The wait of the fetch, and the patience with a silent client.
        let most = Duration::from_secs(10) + 2 * IDLE;
        assert!(within(most, || machine.connected() == 0).await);
        // Nothing has come; the link works again, and the connection never will.
        turmoil::repair("lost", SERVER);
        let got = timeout(Duration::from_secs(5), link.fetched()).await;
        assert!(!matches!(got, Ok(Ok(_))), "an answer over a broken link");
        let mut again = Link::open(15, 50).await?;
        again.produce(&produce("t", 0, None, &["x"])).await?;
        Ok(())
    });
    story.play();
}

#[test]
fn a_link_that_stands_still_loses_nothing() {
    let mut story = Story::new(16, 30);
    story.client("held", async move |machine| {
        let mut link = Link::open_patiently(16, 30).await;
        link.create("t", 1).await?;
        for round in 0..5 {
            turmoil::hold("held", SERVER);
            let value = format!("v{round}");
            let asked = link.produce_frame(&produce("t", 0, None, &[&value]));
            link.send(&asked).await?;
            sleep(Duration::from_secs(2)).await;
            assert_eq!(machine.connected(), 1);
            turmoil::release("held", SERVER);
            let answer = timeout(Duration::from_secs(2), link.produced()).await;
            assert_eq!(answer.expect("in time")?.base_offset, round);
        }
        Ok(())
    });
    story.play();
}

#[test]
fn a_reset_in_the_middle_of_a_frame_stores_nothing() {
    for seed in 20..26 {
        let mut story = Story::new(seed, 40);
        story.client("client", async move |machine| {
            let mut good = Link::open_patiently(seed, 40).await;
            good.create("t", 1).await?;
            let value = "x".repeat(3_000);
            for cut in [1, 3, 4, 20, 200, 2_900] {
                let mut bad = Link::open(seed + cut as u64, 40).await?;
                // An answer that isn't read makes the end a reset.
                let asked = bad.frame(3, &hello());
                bad.send(&asked).await?;
                sleep(Duration::from_millis(50)).await;
                let frame = bad.produce_frame(&produce("t", 0, None, &[&value]));
                bad.send(&frame[..cut]).await?;
                if cut % 2 == 0 {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            assert!(within(Duration::from_secs(1), || machine.connected() == 1).await);
            assert_eq!(good.bound("t", 0, -1).await?, 0);
            good.produce(&produce("t", 0, None, &["y"])).await?;
            assert_eq!(good.bound("t", 0, -1).await?, 1);
            Ok(())
        });
        story.play();
    }
}

#[test]
fn a_reset_in_the_middle_of_an_answer_harms_nobody() {
    for seed in 30..34 {
        let mut story = Story::new(seed, 1_000);
        story.client("client", async move |machine| {
            let mut good = Link::open_patiently(seed, 1_000).await;
            good.create("t", 1).await?;
            let value = "x".repeat(10_000);
            // More than the memory for recent records: the first of them come from files.
            for _ in 0..30 {
                good.produce(&produce("t", 0, None, &[&value])).await?;
            }
            for round in 0..5 {
                let mut bad = Link::open(seed + round, 1_000).await?;
                let asked = bad.fetch_frame(&fetch("t", 0, 0, Duration::ZERO));
                bad.send(&asked).await?;
                let mut some = [0; 3_000];
                tokio::io::AsyncReadExt::read_exact(&mut bad.stream, &mut some).await?;
            }
            assert!(within(Duration::from_secs(1), || machine.connected() == 1).await);
            let mut at = 0;
            while at < 30 {
                let part = good.fetch(&fetch("t", 0, at, Duration::ZERO)).await?;
                let got = values(&part, at);
                assert!(got.iter().all(|(_, v)| *v == value));
                at = got.last().expect("there are more").0 + 1;
            }
            Ok(())
        });
        story.play();
    }
}

#[test]
fn who_does_not_read_is_not_read_from_and_holds_up_nobody_else() {
    let mut story = Story::with(40, 4_000, |builder| {
        // Pieces that wait to be read, in each direction.
        builder.tcp_capacity(64);
    });
    const ASKED: usize = 3_000;
    story.client("client", async move |machine| {
        let mut good = Link::open_patiently(40, 4_000).await;
        good.create("t", 1).await?;
        let value = "x".repeat(20_000);
        for _ in 0..5 {
            good.produce(&produce("t", 0, None, &[&value])).await?;
        }
        let mut slow = Link::open(41, 4_000).await?;
        let mut sent = 0;
        loop {
            let frame = slow.fetch_frame(&fetch("t", 0, 0, Duration::ZERO));
            match timeout(Duration::from_secs(3), slow.send(&frame)).await {
                Ok(sent_whole) => sent_whole?,
                // Part of a frame may be out: it is finished when there is room.
                Err(_) => break,
            }
            sent += 1;
            assert!(sent < ASKED, "taken without end");
        }
        // A hundred under way, and what lies in buffers of both ends.
        assert!(
            sent < 1_000,
            "{sent} requests are taken from who doesn't read"
        );
        assert!(machine.running().limits.received() <= 64 << 10);
        let begun = Instant::now();
        let stored = good.produce(&produce("t", 0, None, &["y"])).await?;
        assert_eq!(stored.error_code, ErrorCode::NONE);
        assert!(begun.elapsed() < Duration::from_secs(1));
        // It reads on, and nothing is missing; the frame that was cut off is the last.
        for n in 0..sent {
            let got = timeout(Duration::from_secs(5), slow.fetched()).await;
            let got = got.unwrap_or_else(|_| panic!("answer {n} of {sent} doesn't come"))?;
            assert!(got >= 20_000, "{got} bytes");
        }
        Ok(())
    });
    story.play();
}

#[test]
fn a_stop_answers_what_is_under_way_and_waits_for_nobody_who_is_parked() {
    let mut story = Story::new(50, 60);
    story.client("client", async move |machine| {
        let mut writer = Link::open_patiently(50, 60).await;
        writer.create("t", 1).await?;
        let mut parked = Link::open(51, 60).await?;
        let asked = parked.fetch_frame(&fetch("t", 0, 0, Duration::from_secs(300)));
        parked.send(&asked).await?;
        let mut silent = Link::open(52, 60).await?;
        sleep(Duration::from_millis(50)).await;
        *machine.slow.lock() = Duration::from_millis(200);
        let asked = writer.produce_frame(&produce("t", 0, None, &["x"]));
        writer.send(&asked).await?;
        // It has arrived, and the disk is slow.
        sleep(Duration::from_millis(20)).await;
        let running = machine.running();
        running.stop.send(true)?;
        let begun = Instant::now();
        assert_eq!(writer.produced().await?.error_code, ErrorCode::NONE);
        for link in [&mut writer, &mut parked, &mut silent] {
            link.until_closed().await;
        }
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!(within(Duration::from_secs(1), || running.limits.connected() == 0).await);
        assert!(Link::open(53, 60).await.is_err(), "nobody listens any more");
        Ok(())
    });
    story.play();
}
