//! Controllers, load balancers and repairs of NICs that other crates define, by name.
//!
//! A plan names a controller after a `@` (`protocol = "roce@aimd"`), a repair in place of a protocol (`protocol =
//! "twice"`, or `"twice@aimd"`), and a load balancer of switches (`balancer = "shortest"`). Names of protocols that this
//! crate has come first.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use farwrite_net::{Balancer, PortChoice};
pub use farwrite_rate::{Acknowledged, Detail, Feedback, Hop, Limits, Loss, RateControl, Sent};
pub use farwrite_rc::{PathProfile, Repair, Unacknowledged};

use farwrite_net::MakeBalancer;

/// Makes the controller of a flow.
pub(crate) type MakeControl = dyn Fn(&PathProfile) -> Box<dyn RateControl + Send> + Send + Sync;
/// Makes the repair of a flow.
pub(crate) type MakeRepair = dyn Fn(&PathProfile) -> Box<dyn Repair> + Send + Sync;

/// What a program adds to the simulator. Plans read it with [`Plan::read_with`](crate::plan::Plan::read_with).
#[derive(Clone, Default)]
pub struct Extensions {
    controllers: BTreeMap<String, Named<MakeControl>>,
    repairs: BTreeMap<String, Named<MakeRepair>>,
    balancers: BTreeMap<String, MakeBalancer>,
}

impl Extensions {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a congestion controller of NICs. `make` makes that of one flow, for the path of the flow with empty queues.
    #[must_use]
    pub fn controller<C: RateControl + Send + 'static>(
        mut self,
        name: &str,
        make: impl Fn(&PathProfile) -> C + Send + Sync + 'static,
    ) -> Self {
        let boxed =
            move |path: &PathProfile| -> Box<dyn RateControl + Send> { Box::new(make(path)) };
        let boxed: Arc<MakeControl> = Arc::new(boxed);
        let named = Named::new(name, boxed);
        self.controllers.insert(name.to_owned(), named);
        self
    }

    /// Adds a repair of NICs. `make` makes that of one flow, as for controllers.
    #[must_use]
    pub fn repair<R: Repair + 'static>(
        mut self,
        name: &str,
        make: impl Fn(&PathProfile) -> R + Send + Sync + 'static,
    ) -> Self {
        let boxed = move |path: &PathProfile| -> Box<dyn Repair> { Box::new(make(path)) };
        let boxed: Arc<MakeRepair> = Arc::new(boxed);
        let named = Named::new(name, boxed);
        self.repairs.insert(name.to_owned(), named);
        self
    }

    /// Adds a load balancer. `make` makes that of one switch from a seed.
    #[must_use]
    pub fn balancer<B: Balancer + 'static>(
        mut self,
        name: &str,
        make: impl Fn(u64) -> B + Send + Sync + 'static,
    ) -> Self {
        let boxed = move |seed: u64| -> Box<dyn Balancer> { Box::new(make(seed)) };
        self.balancers.insert(name.to_owned(), Arc::new(boxed));
        self
    }

    pub(crate) fn balancers(&self) -> &BTreeMap<String, MakeBalancer> {
        &self.balancers
    }

    pub(crate) fn control(&self, name: &str) -> Option<Named<MakeControl>> {
        self.controllers.get(name).cloned()
    }

    pub(crate) fn repair_of(&self, name: &str) -> Option<Named<MakeRepair>> {
        self.repairs.get(name).cloned()
    }

    /// The names of the controllers and of the repairs, for errors.
    pub(crate) fn names(&self) -> [String; 2] {
        let joined = |names: Vec<&str>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        [
            joined(self.controllers.keys().map(String::as_str).collect()),
            joined(self.repairs.keys().map(String::as_str).collect()),
        ]
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("controllers", &self.controllers)
            .field("repairs", &self.repairs)
            .field("balancers", &self.balancers.keys())
            .finish()
    }
}

/// A part of another crate, by its name.
pub(crate) struct Named<F: ?Sized> {
    pub(crate) name: String,
    pub(crate) make: Arc<F>,
}

impl<F: ?Sized> Named<F> {
    fn new(name: &str, make: Arc<F>) -> Self {
        let name = name.to_owned();
        Self { name, make }
    }
}

impl<F: ?Sized> Clone for Named<F> {
    fn clone(&self) -> Self {
        Self::new(&self.name, Arc::clone(&self.make))
    }
}

impl<F: ?Sized> fmt::Debug for Named<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Parts are equal if their names are.
impl<F: ?Sized> PartialEq for Named<F> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<F: ?Sized> Eq for Named<F> {}
