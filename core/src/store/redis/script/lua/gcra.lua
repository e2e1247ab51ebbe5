-- gcra: a meter.
if algorithm == 7 then return ask, add, take, ends end
