-- calendar-window. used: 0 when it is not charged.
-- Of the UTC calendar: index: the number of the window; period: the length of a window, of which one begins `shift` before 1970; or 0
-- for windows of so many real months.
-- Of a calendar of one's own the core hands edges with each call: the one before the window that it takes to be open, the one at
-- which that begins, the next, and one more (`edge_3`), which the slow path puts in the place of another when it has come so far. The
-- number of a kept window: the second at which it closes times 2^19, and how many times 64 s before it was charged last.
-- docs/adr/0034 has the reasons.
--[[ algorithms: CALENDAR_WINDOW ]]
--[[ fields: index, used ]]
--[[ numbers: count, period, months, shift ]]
--[[ more methods ]]
function rule:refund(value, cost)
  self:advance(value)
  local returned = min(cost, used)
  used = used - returned
  if used == 0 then index = 0 end
  return returned
end
--[[ when: months >= 0 ]]
--[[ helpers: index_of, end_of ]]
local DAY = 86400000000
-- The number of the window at a moment. Years are taken to begin in March, so that the leap day is the last of its year.
function index_of(moment, length, each, before)
  if length > 0 then return floor((moment + before) / length) end
  local day = floor(moment / DAY) + 719468
  local era = floor(day / 146097)
  local day_of_era = day - era * 146097
  local leap_days = floor(day_of_era / 1460) - floor(day_of_era / 36524) + floor(day_of_era / 146096)
  local year_of_era = floor((day_of_era - leap_days) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100))
  return floor(((era * 400 + year_of_era) * 12 + floor((5 * day_of_year + 2) / 153) + 2 - 23640) / each)
end
-- The first moment after a window.
function end_of(window, length, each, before)
  if length > 0 then return (window + 1) * length - before end
  local month = (window + 1) * each + 23638
  local year = floor(month / 12)
  month = month - year * 12
  local era = floor(year / 400)
  local year_of_era = year - era * 400
  local day_of_era = 365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100) + floor((153 * month + 2) / 5)
  return (era * 146097 + day_of_era - 719468) * DAY
end
--[[ advance ]]
local current = index_of(now, period, months, shift)
if used == 0 or current > index then index, used = current, 0 end
--[[ used ]]
used
--[[ possible ]]
used <= MAX and (period > 0 and index * period - shift or index * months * 2629746000000 - 345600000000) <= LATEST
--[[ charge ]]
local after_charge = used + cost
used = after_charge < MAX and after_charge or MAX
ends = end_of(index, period, months, shift)
--[[ methods ]]
function rule:ends(value) return used == 0 and 0 or end_of(index, period, months, shift) end
-- Meets a window that a calendar of one's own has kept, which the methods of that serve, with the edges of this one.
function rule:adopt(value)
  if used == 0 or index < 524288 or period > 0 and period < DAY or self.edges then return false end
  local current = index_of(now, period, months, shift)
  local function edge(window) return end_of(window, period, months, shift) end
  local own = rule_of(CALENDAR_WINDOW, -1, 1, all_methods)
  local edges = setmetatable({ x = -1 - edge(current - 1), y = edge(current), z = 1 }, own)
  edges.first, edges.count, edges.period, self.edges = first, count, edge(current - 2), edges
  for _, name in ipairs({ 'advance', 'used', 'possible', 'charge', 'ends', 'refund', 'undo' }) do
    local of_number, of_kept = self[name], own[name]
    self[name] = of_kept and function(limit, value, ...)
      if index < 524288 then return of_number(limit, value, ...) end
      local result = of_kept(edges, value, ...)
      if name == 'advance' and used == 0 then of_number(limit, value) end
      -- This calendar has a number for it.
      if name == 'charge' and floor(index / 524288) * 1000000 == edges.y then index = current end
      return result
    end
  end
  return false
end
--[[ more methods ]]
function rule:undo(value, cost, charge)
  return index_of(charge.at, period, months, shift) == index and self:refund(value, cost) or 0
end
--[[ when: negated_1 < 0 ]]
--[[ numbers: count, edge_0, negated_1, edge_2, edge_3 ]]
--[[ advance ]]
local begins = -1 - negated_1
if now < begins then begins = edge_0 end
local closes = floor(index / 524288) * 1000000
-- What another calendar has kept counts until the first edge of this one after its last charge, too.
if used == 0 or index >= 524288 and closes <= now and closes - 1 - index % 524288 * 64000000 < begins then
  index, used = 0, 0
end
--[[ used ]]
used
--[[ possible ]]
now >= edge_0 and now < edge_2 and used <= MAX and (used == 0 or index >= 524288)
  and floor(index / 524288) * 1000000 <= LATEST + edge_2 - edge_0
--[[ charge ]]
local closes = -1 - negated_1
if now >= closes then closes = edge_2 end
local next_edge, last = closes, now
if used > 0 then
  local kept = floor(index / 524288) * 1000000
  local charged = kept - 1 - index % 524288 * 64000000
  if charged > last then last = charged end
  if kept > closes then closes = kept end
end
local steps = floor((closes - 1 - last) / 64000000)
if steps > 524287 then steps = 524287 end
index = closes / 1000000 * 524288 + steps
local after_charge = used + cost
used = after_charge < MAX and after_charge or MAX
ends = closes
-- The step may hold the next edge.
if closes > next_edge and closes - 1 - steps * 64000000 >= next_edge then ends = closes + edge_2 - edge_0 end
--[[ methods ]]
function rule:ends(value)
  if used == 0 then return 0 end
  local closes = floor(index / 524288) * 1000000
  local last = closes - 1 - index % 524288 * 64000000
  if last >= edge_2 or last < edge_0 then return closes end
  return max(closes, last < -1 - negated_1 and -1 - negated_1 or edge_2)
end
-- Of a window of the UTC calendar the last charge is not known, but that it is not later than the first look at it.
function rule:adopt(value)
  if used == 0 or index >= 524288 then return false end
  local unit = floor(byte(self.id, #self.id) / 31)
  local days, months = unit == 4 and 1 or unit == 5 and 7 or 0, unit == 6 and 1 or unit == 7 and 12 or 0
  local utc = { first = 1, period = days * 86400000000, x = months, y = days == 7 and 259200000000 or 0 }
  local closes = rule_of(CALENDAR_WINDOW, months, 0).ends(utc, { index, used })
  index = closes / 1000000 * 524288 + min(floor((closes - 1 - min(now, closes - 1)) / 64000000), 524287)
  self:advance(value)
  return used > 0
end
--[[ more methods ]]
function rule:undo(value, cost, charge)
  self:advance(value)
  local begins, closes = -1 - negated_1, edge_2
  if now < begins then begins, closes = edge_0, begins end
  local last = floor(index / 524288) * 1000000 - 1 - index % 524288 * 64000000
  return used > 0 and last < closes and charge.at >= begins and self:refund(value, cost) or 0
end
