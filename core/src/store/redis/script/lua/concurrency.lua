-- concurrency. total: the units of all holds. The list: '<I7I7I7' for each hold, the first to expire first: when it expires, its id
-- (0: none, so it cannot be renewed), its units.
--[[ algorithms: CONCURRENCY ]]
--[[ fields: touched, total, list ]]
--[[ numbers: count, ttl ]]
--[[ helpers: with_hold ]]
function with_hold(holds, expires, id, units)
  local position = #holds + 1
  while position > 1 and unpack_('<I7', holds, position - 21) > expires do position = position - 21 end
  return sub(holds, 1, position - 1) .. pack('<I7I7I7', expires, id, units) .. sub(holds, position)
end
--[[ advance ]]
local at, position = now < touched and touched or now, 1
while position < #list do
  local expires, _, units, after = unpack_('<I7I7I7', list, position)
  if expires > at then break end
  position, total = after, total - units
end
if position > 1 then list = sub(list, position) end
if total < 0 then error('total') end
--[[ used ]]
total
--[[ possible ]]
touched <= LATEST and (list == '' and total == 0 or list ~= '' and total >= 0 and total <= MAX
  and unpack_('<I7', list) <= LATEST + 316224000000000 and unpack_('<I7', list, #list - 20) <= LATEST + 316224000000000)
--[[ charge ]]
if now > touched then touched = now end
local units = cost
if units > MAX - total then units = MAX - total end
list, total = with_hold(list, touched + ttl, hold or 0, units), total + units
ends = unpack_('<I7', list, #list - 20)
--[[ methods ]]
function rule:ends(value) return list == '' and 0 or (unpack_('<I7', list, #list - 20)) end
--[[ more methods ]]
-- Brings it to the time, and its moment too.
local function touch(self, value)
  self:advance(value)
  touched = max(now, touched)
end
-- Of holds without an id, the first to expire first.
function rule:refund(value, cost) return self:undo(value, cost) end
-- Of a charge only those that expire when its did.
function rule:undo(value, cost, charge)
  touch(self, value)
  local holds, left, parts = list, cost, {}
  for position = 1, #holds, 21 do
    local expires, id, units = unpack_('<I7I7I7', holds, position)
    local taken = (id > 0 or charge and charge.at + ttl ~= expires) and 0 or min(units, left)
    left, units = left - taken, units - taken
    if units > 0 then parts[#parts + 1] = pack('<I7I7I7', expires, id, units) end
  end
  list, total = table.concat(parts), total - (cost - left)
  return cost - left
end
-- Removes a live hold and returns its units. Without one nothing changes, and it returns nil.
function rule:close(value, id)
  local touched_before, total_before, list_before = touched, total, list
  touch(self, value)
  local holds = list
  for position = 1, #holds, 21 do
    local _, other, units = unpack_('<I7I7I7', holds, position)
    if other == id then
      list, total = sub(holds, 1, position - 1) .. sub(holds, position + 21), total - units
      return units
    end
  end
  touched, total, list = touched_before, total_before, list_before
end
function rule:renew(value, id)
  local units = self:close(value, id)
  if units then list, total = with_hold(list, touched + ttl, id, units), total + units end
  return units
end
