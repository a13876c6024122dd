/** The datetime server tool: the current date and time in a time zone. */
import type { Clock } from '../../base/clock.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
} from '../../exchange/server-tool.ts'
import { isTimeZone } from '../../protocol/gateway-tools.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'

const DEFAULT_TIMEZONE = 'UTC'

export function createDatetime({ clock }: { readonly clock: Clock }): ServerTool {
  return {
    name: 'datetime',
    open: entries => ({
      declare: () => entries.map(({ tool }) => declaration(tool)),
      firstForm: call => fieldsAt(clock, zoneOf(call) ?? defaultZone(call.tool)),
      run(call): ToolOutcome {
        const zone = zoneOf(call)
        if (zone === null) {
          return {
            item: { ...fieldsAt(clock, defaultZone(call.tool)), status: 'incomplete' },
            result: JSON.stringify({
              error: 'timezone: must be an IANA time zone, for example Europe/Berlin',
            }),
          }
        }
        const item = fieldsAt(clock, zone)
        return { item, result: JSON.stringify(item) }
      },
    }),
  }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  return {
    tool,
    name: 'datetime',
    description: `Returns the current date and time. Default time zone: ${defaultZone(tool)}.`,
    parameters: objectSchema([], {
      timezone: { type: 'string', description: 'IANA time zone, for example Europe/Berlin' },
    }),
  }
}

/** The zone that the call names, otherwise the zone of the request; null if the call names no time zone. */
function zoneOf(call: ToolCall): string | null {
  const zone = call.arguments['timezone']
  if (zone === undefined || zone === null || zone === '') return defaultZone(call.tool)
  return typeof zone === 'string' && isTimeZone(zone) ? zone : null
}

/** The zone that the request names, or UTC. */
function defaultZone({ parameters }: RequestedTool): string {
  const zone = parameters?.['timezone']
  return typeof zone === 'string' && isTimeZone(zone) ? zone : DEFAULT_TIMEZONE
}

function fieldsAt(clock: Clock, timezone: string): { datetime: string; timezone: string } {
  return { datetime: zonedInstant(clock.nowMs(), timezone), timezone }
}

/** ISO 8601 with milliseconds and the offset of the zone, for example `2026-03-01T09:30:00.000+01:00`. */
function zonedInstant(ms: number, timeZone: string): string {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    calendar: 'gregory',
    numberingSystem: 'latn',
    hourCycle: 'h23',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    timeZoneName: 'longOffset',
  })
  const parts: Partial<Record<Intl.DateTimeFormatPartTypes, string>> = {}
  for (const { type, value } of format.formatToParts(ms)) parts[type] = value
  const { year, month, day, hour, minute, second, timeZoneName = '' } = parts
  const offset = timeZoneName.replace('GMT', '') || '+00:00'
  const millis = String(((ms % 1000) + 1000) % 1000).padStart(3, '0')
  return `${year}-${month}-${day}T${hour}:${minute}:${second}.${millis}${offset}`
}
