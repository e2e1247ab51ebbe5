-- leaky-bucket: a meter; who is admitted reads its delay from the value.
rules[8] = meter
