//! One answer made of many: the parts of a request go to the node one by one, and come back in any order, from any thread.

use std::sync::Arc;

use parking_lot::Mutex;
use riverlog_node::Reply;

/// Waits for `n` answers and hands them over in the order of their questions.
pub(crate) struct Gather<T> {
    state: Arc<Mutex<State<T>>>,
}

struct State<T> {
    answers: Vec<Option<T>>,
    /// Answers that are missing, and one for the gatherer itself until it is sealed.
    missing: usize,
    done: Option<Box<dyn FnOnce(Vec<T>) + Send>>,
}

impl<T: Send + 'static> Gather<T> {
    /// `done` runs once, when all places have been filled and [`Gather::seal`] was called; without any lock held.
    pub(crate) fn new(done: impl FnOnce(Vec<T>) + Send + 'static) -> Gather<T> {
        let state = State {
            answers: Vec::new(),
            missing: 1,
            done: Some(Box::new(done)),
        };
        Gather {
            state: Arc::new(Mutex::new(state)),
        }
    }
    /// A place whose answer is known already.
    pub(crate) fn ready(&mut self, answer: T) {
        self.state.lock().answers.push(Some(answer));
    }
    /// A place whose answer will come by the reply, as `f` makes it.
    pub(crate) fn reply<A>(&mut self, f: impl FnOnce(A) -> T + Send + 'static) -> Reply<A> {
        let at = {
            let mut state = self.state.lock();
            state.answers.push(None);
            state.missing += 1;
            state.answers.len() - 1
        };
        let state = Arc::clone(&self.state);
        Reply::new(move |answer| complete(&state, Some((at, f(answer)))))
    }
    /// No more places come.
    pub(crate) fn seal(self) {
        complete(&self.state, None);
    }
}

fn complete<T>(state: &Mutex<State<T>>, answer: Option<(usize, T)>) {
    let finished = {
        let mut state = state.lock();
        if let Some((at, answer)) = answer
            && let Some(place) = state.answers.get_mut(at)
        {
            *place = Some(answer);
        }
        state.missing -= 1;
        if state.missing == 0 {
            let answers: Vec<T> = std::mem::take(&mut state.answers)
                .into_iter()
                .flatten()
                .collect();
            state.done.take().map(|done| (done, answers))
        } else {
            None
        }
    };
    if let Some((done, answers)) = finished {
        done(answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_their_questions() {
        let seen = Arc::new(Mutex::new(None));
        let out = Arc::clone(&seen);
        let mut gather = Gather::new(move |all: Vec<i32>| *out.lock() = Some(all));
        let first = gather.reply(|n: i32| n);
        gather.ready(2);
        let third = gather.reply(|n: i32| n);
        gather.seal();
        third.send(3);
        assert_eq!(*seen.lock(), None);
        first.send(1);
        assert_eq!(*seen.lock(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn no_questions_are_answered_at_once() {
        let seen = Arc::new(Mutex::new(false));
        let out = Arc::clone(&seen);
        Gather::new(move |all: Vec<i32>| *out.lock() = all.is_empty()).seal();
        assert!(*seen.lock());
    }
}
