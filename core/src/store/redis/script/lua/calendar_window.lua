-- calendar-window. index: the number of the window; used: 0 when it is not charged. period: the length of a window, of which one
-- begins `shift` before 1970; or 0 for windows of so many real months.
--[[ algorithms: CALENDAR_WINDOW ]]
--[[ fields: index, used ]]
--[[ numbers: count, period, months, shift ]]
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
--[[ more methods ]]
function rule:refund(value, cost)
  self:advance(value)
  local returned = min(cost, used)
  used = used - returned
  if used == 0 then index = 0 end
  return returned
end
function rule:undo(value, cost, charge)
  return index_of(charge.at, period, months, shift) == index and self:refund(value, cost) or 0
end
