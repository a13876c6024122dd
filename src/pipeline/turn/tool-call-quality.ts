/**
 * Faulty tool calls in a reply: arguments that are not JSON, and names that the request does not declare. Runs after
 * the end of an answer. Arguments are not validated against their schemas, because that would need one pool task per
 * call.
 */
import type { Clock } from '../../base/clock.ts'
import { parseJson } from '../../base/json.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { CallFault } from '../../base/metrics/table.ts'
import type { OutputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { RunningExchange } from '../exchange-stages.ts'

/** Longer arguments are not parsed a second time. */
const ARGUMENTS_MAX_CHARS = 64 * 1024

/** Reports the calls that the client has to run to the health of the endpoint that made them. */
export function noteCalls(
  { clock, metrics }: { readonly clock: Clock; readonly metrics: Metrics },
  { answer, attempts, prompt }: RunningExchange,
): void {
  if ((prompt.tools?.length ?? 0) === 0) return
  const last = attempts.at(-1)
  if (last?.health === undefined) return
  let [good, faulty] = [0, 0]
  let names: ReadonlySet<string> | null = null
  for (const item of answer.output) {
    if (item.type !== 'function_call' || item.status !== 'completed') continue
    names ??= namesOf(prompt)
    const fault = faultOf(item, names)
    if (fault === null) good++
    else {
      faulty++
      metrics.toolCallFaults.inc({ provider: last.endpoint.provider.slug, fault })
    }
  }
  // Each reply counts once: a reply with many calls says no more about the endpoint.
  if (faulty > 0) last.health.countCalls(clock.monotonicMs(), 0, 1)
  else if (good > 0) last.health.countCalls(clock.monotonicMs(), 1, 0)
}

function faultOf(
  { name, arguments: json }: Extract<OutputItem, { type: 'function_call' }>,
  names: ReadonlySet<string>,
): CallFault | null {
  if (names.size > 0 && !names.has(name)) return 'unknown_name'
  // A function without parameters may be called without arguments.
  if (json === '' || json.length > ARGUMENTS_MAX_CHARS) return null
  return parseJson(json) === undefined ? 'invalid_json' : null
}

/** The functions that the request declares; empty if it may have others, such as functions of a namespace. */
function namesOf({ tools, input }: ResponsesRequest): ReadonlySet<string> {
  const names = new Set<string>()
  if (typeof input !== 'string' && input.some(({ type }) => type === 'additional_tools')) return names
  for (const tool of tools ?? []) {
    if (tool.type !== 'function' || !('name' in tool) || typeof tool.name !== 'string') return new Set()
    names.add(tool.name)
  }
  return names
}
