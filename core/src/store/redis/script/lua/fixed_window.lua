-- fixed-window. opened: when its window began; used: 0 when no window is open.
--[[ algorithms: FIXED_WINDOW ]]
--[[ fields: opened, used ]]
--[[ numbers: count, period ]]
--[[ advance ]]
if now >= opened + period then used = 0 end
--[[ used ]]
used
--[[ possible ]]
opened <= LATEST and used <= MAX
--[[ charge ]]
if used == 0 then opened = now end
local after_charge = used + cost
used = after_charge < MAX and after_charge or MAX
ends = opened + period
--[[ methods ]]
function rule:ends(value) return used == 0 and 0 or opened + period end
-- A window that opens now begins at the moment of a charge that was made now.
function rule:clear_ends(value)
  local ends = self:ends(value)
  return ends > now and max(ends, now + period) or ends
end
--[[ more methods ]]
function rule:refund(value, cost)
  self:advance(value)
  local returned = min(cost, used)
  used = used - returned
  if used == 0 then opened = 0 end
  return returned
end
function rule:undo(value, cost, charge) return opened <= charge.at and self:refund(value, cost) or 0 end
