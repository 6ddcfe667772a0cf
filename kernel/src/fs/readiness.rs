//! What an open file is ready for, and which watchers are notified when that changes: for `ppoll`,
//! `pselect6` and `epoll` (decision 31).

use alloc::sync::Arc;

use cops_abi::Priority;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{ALWAYS, READABLE, READING, WRITABLE, WRITING};
use cops_algorithms::terminal::Party;
use cops_fallible::OutOfMemory;

use super::file::{CONSOLE_WRITERS, File, Object};
use super::terminal;
use crate::drivers::console;
use crate::sched::{WaitQueue, Waiting, Watcher};

impl File {
    /// The events of `ppoll` that it has now, for a process of `party`.
    pub fn readiness(&self, party: Party) -> u32 {
        match &self.object {
            Object::Socket(socket) => socket.readiness(),
            Object::Datagrams(socket) => socket.readiness(),
            Object::PipeReader(pipe) => pipe.readiness(),
            Object::PipeWriter(pipe) => pipe.readiness(),
            Object::Paired(paired) => paired.readiness(),
            Object::Event(counter) => counter.readiness(),
            Object::Timer(timer) => timer.readiness(),
            Object::Epoll(instance) => bits_if(instance.has_listed(), READABLE),
            Object::ConsoleInput => bits_if(terminal::is_ready(party), READABLE),
            Object::ConsoleOutput | Object::ConsoleError => {
                bits_if(console::has_room_or_notifies(), WRITABLE)
            }
            Object::Console => {
                bits_if(terminal::is_ready(party), READABLE)
                    | bits_if(console::has_room_or_notifies(), WRITABLE)
            }
            Object::FileServer(server) => bits_if(server.queue().1, READABLE) | WRITABLE,
            // Reads and writes of these do not wait for an event.
            Object::Node { .. }
            | Object::Served(_)
            | Object::Device { .. }
            | Object::Disk { .. } => READABLE | WRITABLE,
        }
    }

    /// As [`Self::readiness`], if some of the events in `wanted` are. Of an epoll instance, entries
    /// that are not ready any more are armed with the asker's priority, at most `visits`. `None`:
    /// there are more, so that it has to be looked at again.
    pub fn look(
        &self,
        wanted: u32,
        (party, priority): (Party, Priority),
        visits: &mut usize,
    ) -> Option<u32> {
        match &self.object {
            Object::Epoll(instance) if wanted & READABLE != 0 => {
                let is_ready = instance.look(party, priority, visits)?;
                Some(bits_if(is_ready, READABLE))
            }
            _ => Some(self.readiness(party)),
        }
    }

    /// Whether it can have an entry in an epoll instance: whether it is ever not ready.
    pub fn can_be_watched(&self) -> bool {
        !matches!(
            self.object,
            Object::Node { .. } | Object::Served(_) | Object::Device { .. } | Object::Disk { .. }
        )
    }

    /// The queues of its two directions.
    fn queues(&self) -> [Option<&WaitQueue>; 2] {
        match &self.object {
            Object::Socket(socket) => {
                [Waiting::ToRead, Waiting::ToWrite].map(|waiting| Some(socket.queue(waiting)))
            }
            Object::Datagrams(socket) => {
                [Waiting::ToRead, Waiting::ToWrite].map(|waiting| Some(socket.queue(waiting)))
            }
            Object::PipeReader(pipe) => [Some(pipe.waiters()), None],
            Object::PipeWriter(pipe) => [None, Some(pipe.waiters())],
            Object::Paired(paired) => {
                [Waiting::ToRead, Waiting::ToWrite].map(|waiting| Some(paired.waiters(waiting)))
            }
            Object::Event(counter) => {
                [Waiting::ToRead, Waiting::ToWrite].map(|waiting| Some(counter.queue(waiting)))
            }
            Object::Timer(timer) => [Some(timer.queue()), None],
            Object::Epoll(instance) => [Some(instance.queue()), None],
            Object::ConsoleInput => [Some(terminal::changes()), None],
            Object::ConsoleOutput | Object::ConsoleError => [None, Some(&CONSOLE_WRITERS)],
            Object::Console => [Some(terminal::changes()), Some(&CONSOLE_WRITERS)],
            Object::FileServer(server) => [Some(server.queue().0), None],
            Object::Node { .. }
            | Object::Served(_)
            | Object::Device { .. }
            | Object::Disk { .. } => [None, None],
        }
    }

    /// The queues to be watched for `events`. A file with one queue is watched for any events,
    /// because errors are always reported.
    fn queues_for(&self, events: u32) -> impl Iterator<Item = (Waiting, &WaitQueue)> {
        let queues = self.queues();
        let has_both = queues.iter().all(Option::is_some);
        let asks = move |waiting| match waiting {
            Waiting::ToRead => events & READING != 0 || events & WRITING == 0,
            Waiting::ToWrite => events & WRITING != 0,
        };
        let [to_read, to_write] = queues;
        [(Waiting::ToRead, to_read), (Waiting::ToWrite, to_write)].into_iter().filter_map(
            move |(waiting, queue)| {
                queue.filter(|_| !has_both || asks(waiting)).map(|queue| (waiting, queue))
            },
        )
    }

    /// Tells `watcher`, once, when one of `events` may have come. The caller looks at
    /// [`Self::readiness`] afterwards.
    ///
    /// # Errors
    /// [`OutOfMemory`], only the first time.
    pub fn watch(
        &self,
        watcher: &Arc<dyn Watcher>,
        events: u32,
        priority: Priority,
    ) -> Result<(), OutOfMemory> {
        for (waiting, queue) in self.queues_for(events & !ALWAYS) {
            queue.watch(watcher, waiting, priority)?;
            // The stack notifies the queue once.
            match &self.object {
                Object::Socket(socket) => _ = socket.listen_for(waiting),
                Object::Datagrams(socket) => _ = socket.listen_for(waiting),
                _ => {}
            }
        }
        Ok(())
    }

    /// `watcher` does not want to be notified any more.
    pub fn unwatch(&self, watcher: &dyn Watcher) {
        let [to_read, to_write] = self.queues();
        for (waiting, queue) in [(Waiting::ToRead, to_read), (Waiting::ToWrite, to_write)] {
            if let Some(queue) = queue {
                queue.unwatch(watcher, waiting);
            }
        }
    }
}
