-- The entries that the loops for checks could not read, then the keys that they do not serve: of a call without checks all of them.
for _, left in ipairs(unread or {}) do
  local place, first, count, instruction = values(left)
  local numbers = {}
  for i = 1, count do numbers[i] = instruction end
  try_key((place - 1) / stride + 1, first - 1, count, numbers, 0)
end

local numbers = program and { unpack_('<' .. string.rep('H', (#program + 1 - at) / 2), program, at) } or nil
if grouping ~= INDEPENDENT and grouping ~= CHECKS then
  local fine, failure = pcall(serve_together, numbers)
  if not fine then return failure_of(failure) end
  return failure or sealed()
end

local before, next_number = entry - 1, 0
for index = (key_at - 1) / stride + 1, key_count do
  local n = numbers and numbers[next_number + 1] or 1
  try_key(index, before, n, numbers, next_number + 1)
  before, next_number = before + n, next_number + n + 1
end
return sealed()
