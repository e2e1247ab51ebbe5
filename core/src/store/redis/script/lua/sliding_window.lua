-- sliding-window. newest: the units of the granule of `touched`; total: all that count. The list: '<I7I7' for each granule before
-- the newest, oldest first: its last instant and its units.
--[[ algorithms: SLIDING_WINDOW ]]
--[[ fields: touched, newest, total, list ]]
--[[ numbers: count, period, granule ]]
--[[ advance ]]
local at = now < touched and touched or now
if touched - touched % granule + granule - 1 + period <= at then
  newest, total, list = 0, 0, ''
elseif list ~= '' then
  local older, position, counted = list, 1, total
  repeat
    local last, units, after = unpack_('<I7I7', older, position)
    if last + period > at then
      -- So many units are not possible, which is seen without another look at the list.
      if last > touched then counted = MAX + 1 end
      break
    end
    position, counted = after, counted - units
  until position > #older
  total = counted
  if position > 1 then list = sub(older, position) end
end
--[[ used ]]
total
--[[ possible ]]
touched <= LATEST and total <= MAX and (newest == total or newest < total and list ~= '')
--[[ open ]]
if now > touched then
  local last = touched - touched % granule + granule - 1
  if now > last then
    if newest > 0 then list = list .. pack('<I7I7', last, newest) end
    newest = 0
  end
  touched = now
end
--[[ charge ]]
--<open>
local units = cost
if units > MAX - total then units = MAX - total end
newest, total = newest + units, total + units
ends = touched - touched % granule + granule - 1 + period
--[[ methods ]]
local possible = rule.possible
function rule:possible(value) return possible(self, value) and (list == '' or unpack_('<I7', list) <= touched) end
function rule:ends(value)
  if newest > 0 then return touched - touched % granule + granule - 1 + period end
  return list == '' and 0 or unpack_('<I7', list, #list - 13) + period
end
--[[ more methods ]]
function rule:refund(value, cost)
  self:advance(value)
  --<open>
  local returned = min(cost, total)
  if returned == total then
    touched, newest, total, list = 0, 0, 0, ''
    return returned
  end
  local left, older = returned, list
  while left > 0 and older ~= '' do
    local last, units = unpack_('<I7I7', older)
    older = sub(older, 15)
    if units > left then
      older, units = pack('<I7I7', last, units - left) .. older, left
    end
    left = left - units
  end
  newest, total, list = newest - left, total - returned, older
  return returned
end
function rule:undo(value, cost, charge)
  self:advance(value)
  local last, own, older = charge.at - charge.at % granule + granule - 1, 0, list
  if last + period <= now then return 0 end
  if touched - touched % granule + granule - 1 == last then
    own = left_of(cost, newest, older ~= '', charge)
    newest = newest - own
  else
    for i = 1, #older, 14 do
      local granule_end, units = unpack_('<I7I7', older, i)
      if granule_end == last then
        own = left_of(cost, units, i > 1, charge)
        local rest = units > own and pack('<I7I7', last, units - own) or ''
        list = sub(older, 1, i - 1) .. rest .. sub(older, i + 14)
        break
      end
    end
  end
  total = total - own
  return with_oldest(self, value, cost, own, charge)
end
