//! `tidegate simulate`: traffic through several policies side by side.

mod arguments;
mod progress;

use tidegate_simulate::{SharedStore, Simulation, check_plots, table};

pub(crate) use arguments::Arguments;
use progress::Progress;

use crate::temporary_keys::{TemporaryKeys, temporary_prefix};
use crate::{Outcome, Output, Result};

/// Replays the traffic, and shows the figures of each policy.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Outcome> {
    let policies = arguments.policies()?;
    check_plots(&arguments.out)?;
    let mut traffic = arguments.traffic(&policies)?;
    let (prefix, mut temporary) = (temporary_prefix("simulate"), Vec::new());
    let mut opened = |builder, limiter: &_| {
        temporary.push(TemporaryKeys::of(builder, limiter)?);
        Ok(())
    };
    let url = arguments.store.as_deref();
    let simulation = Simulation {
        policies: &policies,
        retries: arguments.retries(),
        store: url.map(|url| SharedStore { url, prefix: &prefix, opened: &mut opened }),
        decisions: arguments.decisions.as_deref(),
        command: arguments.as_command(),
    };
    let mut progress = Progress::new(policies.len());
    let mut report = simulation.run(&mut traffic, |calls, share| progress.show(calls, share, output))?;
    temporary.into_iter().try_for_each(TemporaryKeys::remove)?;
    for path in &arguments.out {
        report.draw(path, arguments.theme)?;
    }
    if output.is_json() {
        output.json(&report.json());
    } else {
        output.line(table(&report));
    }
    Ok(Outcome::Done)
}
