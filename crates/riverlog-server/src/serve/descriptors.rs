//! How the open files that the system grants are shared out. Connections don't get those that the log needs: a stranger who
//! opens connections must not be able to stop writes.

/// For sockets that listen, the write-ahead log, files that are being replaced, and files that are still being read or synced
/// after the log's cache has let go of them.
const OTHERS: usize = 64;

/// HTTP connections, however many the system grants.
const MOST_HTTP: usize = 1_000;

/// What the system grants this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    all: usize,
}

impl Descriptors {
    /// Takes all that the system grants.
    pub(crate) fn granted() -> Descriptors {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of open files stays as it is: {error}");
            limit.current = before;
        }
        let all = limit.current.and_then(|n| usize::try_from(n).ok());
        Descriptors {
            all: all.unwrap_or(usize::MAX),
        }
    }

    /// Files of the data folder that may be open: what is asked for, and at most half.
    pub(crate) fn files(self, asked: usize) -> usize {
        asked.min(self.all.saturating_sub(OTHERS) / 2).max(1)
    }

    /// Connections beside so many files, of Kafka clients and over HTTP: what is asked for, and at most what is left. HTTP
    /// gets a quarter of that, so that neither keeps the other out.
    pub(crate) fn connections(self, asked: usize, files: usize) -> (usize, usize) {
        let left = self.all.saturating_sub(OTHERS).saturating_sub(files);
        let http = (left / 4).clamp(1, MOST_HTTP);
        (asked.min(left - http.min(left)).max(1), http)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_log_its_files() {
        let few = Descriptors { all: 200 };
        assert_eq!(few.files(4_000), 68);
        assert_eq!(few.files(24), 24);
        assert_eq!(few.connections(usize::MAX, 24), (84, 28));
        assert_eq!(few.connections(50, 24), (50, 28));
    }

    #[test]
    fn nobody_is_left_without_any() {
        let none = Descriptors { all: 10 };
        assert_eq!((none.files(4_000), none.connections(9, 1)), (1, (1, 1)));
        let all = Descriptors { all: usize::MAX };
        assert_eq!(all.files(4_000), 4_000);
        assert_eq!(
            all.connections(usize::MAX, 4_000),
            (usize::MAX - 5_064, 1_000)
        );
    }
}
