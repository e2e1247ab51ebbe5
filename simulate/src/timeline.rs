//! Units over time, in as many buckets as a plot can show, however long the traffic is.

/// The most buckets. If more are needed, each pair of buckets becomes one.
const MAX_BUCKETS: usize = 8_192;

/// The units of one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) asked: u64,
    pub(crate) admitted: u64,
    /// Units that went on after the delay of a `leaky-bucket`.
    pub(crate) going: u64,
}

/// Units by time since the start.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    start: u64,
    width: u64,
    buckets: Vec<Bucket>,
}

/// A curve of a plot: its points, and the most of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Curve {
    /// Seconds since the start, and units.
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) most: f64,
}

impl Curve {
    /// Raises the curve to an exact count, because a window of buckets can begin a little late and miss some units.
    pub(crate) fn reach(&mut self, seconds: f64, units: f64) {
        let next = self.points.partition_point(|(at, _)| *at <= seconds);
        if let Some((_, at)) = self.points.get_mut(next.saturating_sub(1)) {
            *at = at.max(units);
            self.most = self.most.max(units);
        }
    }
}

impl Timeline {
    pub(crate) fn new(start: u64) -> Self {
        Self { start, width: 1, buckets: Vec::new() }
    }

    fn bucket(&mut self, at: u64) -> &mut Bucket {
        let since = at.saturating_sub(self.start);
        while since / self.width >= MAX_BUCKETS as u64 {
            self.width *= 2;
            let sum = |pair: &[Bucket], of: fn(&Bucket) -> u64| pair.iter().map(of).sum();
            let halved = self.buckets.chunks(2).map(|pair| Bucket {
                asked: sum(pair, |bucket| bucket.asked),
                admitted: sum(pair, |bucket| bucket.admitted),
                going: sum(pair, |bucket| bucket.going),
            });
            self.buckets = halved.collect();
        }
        let index = (since / self.width) as usize;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, Bucket::default());
        }
        &mut self.buckets[index]
    }

    pub(crate) fn count(&mut self, at: u64, asked: u64, admitted: u64) {
        let bucket = self.bucket(at);
        bucket.asked += asked;
        bucket.admitted += admitted;
    }

    pub(crate) fn count_going(&mut self, at: u64, units: u64) {
        self.bucket(at).going += units;
    }

    /// The units of the last `period` at each moment up to `end`, in at most `columns` points. A point for several
    /// moments has the most units of them. No window is longer than the period, so a curve above a limit shows that
    /// the limit was passed. If the period is shorter than a bucket, a point is the average of the bucket.
    pub(crate) fn trailing(&self, period: u64, end: u64, columns: usize, of: impl Fn(&Bucket) -> u64) -> Curve {
        let in_window = (period / self.width).max(1) as usize;
        let scale = if period < self.width { period as f64 / self.width as f64 } else { 1.0 };
        let last = (end.saturating_sub(self.start) / self.width) as usize + 1;
        let unit = |index: usize| self.buckets.get(index).map_or(0, &of);
        let per_column = last.div_ceil(columns.max(1));
        let mut curve = Curve::default();
        let mut sum = 0_u64;
        for column in (0..last).step_by(per_column) {
            let mut most = 0;
            for index in column..(column + per_column).min(last) {
                sum += unit(index);
                if index >= in_window {
                    sum -= unit(index - in_window);
                }
                most = most.max(sum);
            }
            let units = most as f64 * scale;
            curve.points.push(((column as u64 * self.width) as f64 / 1e6, units));
            curve.most = curve.most.max(units);
        }
        curve
    }

    /// The units in each of `count` equal parts of the time up to `end`.
    pub(crate) fn parts(&self, end: u64, count: usize, of: impl Fn(&Bucket) -> u64) -> Vec<u64> {
        let span = end.saturating_sub(self.start).max(1);
        let mut parts = vec![0; count];
        for (index, bucket) in self.buckets.iter().enumerate() {
            let part = (index as u128 * u128::from(self.width) * count as u128 / u128::from(span)) as usize;
            parts[part.min(count - 1)] += of(bucket);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_buckets_are_merged() {
        let mut timeline = Timeline::new(1_000);
        for call in 0..100_000_u64 {
            timeline.count(1_000 + call * 997, 1, call % 2);
        }
        assert!(timeline.buckets.len() <= MAX_BUCKETS);
        let end = 1_000 + 100_000 * 997;
        assert_eq!(timeline.parts(end, 7, |bucket| bucket.asked).iter().sum::<u64>(), 100_000);
        assert_eq!(timeline.parts(end, 7, |bucket| bucket.admitted).iter().sum::<u64>(), 50_000);
    }

    #[test]
    fn a_curve_never_has_more_than_a_window() {
        let mut timeline = Timeline::new(0);
        for second in 0..1_000_u64 {
            timeline.count(second * 1_000_000, 3, 1);
        }
        let curve = timeline.trailing(60_000_000, 1_000_000_000, 500, |bucket| bucket.admitted);
        assert!((55.0..=60.0).contains(&curve.most), "{}", curve.most);
        let mut curve = curve;
        curve.reach(61.5, 63.0);
        assert_eq!((curve.most, curve.points.iter().filter(|(_, units)| *units > 60.0).count()), (63.0, 1));
        let curve = timeline.trailing(1_000, 1_000_000_000, 500, |bucket| bucket.asked);
        assert!(curve.most < 1.0, "an average");
    }
}
