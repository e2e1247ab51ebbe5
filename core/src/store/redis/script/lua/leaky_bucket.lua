-- leaky-bucket: a meter; who is admitted reads its delay from the value.
if algorithm == 8 then return ask, add, take, ends end
