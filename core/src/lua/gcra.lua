-- gcra: a meter.
rules[7] = meter
