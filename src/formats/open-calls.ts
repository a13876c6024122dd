/**
 * Server-tool calls that the gateway left to the client, as the client sends them back. The model made these calls, so
 * it sees them again: with the client's output, in the same item or a separate one, or with a note that there is no
 * output. Pure.
 */
import type { InputItem } from '../protocol/items.ts'
import { callIdOf } from './replayed.ts'

type Fields = Readonly<Record<string, unknown>>

type MissingOutput = (item: Fields, callId: string, isAnswered: boolean) => readonly Fields[]

interface OpenCallKind {
  /** Fields that hold a result. */
  readonly results: readonly string[]
  /** The items for a call without a result. */
  readonly missing: MissingOutput
}

/** The kinds of open calls, by the type of their items. */
const OPEN_CALL_KINDS: ReadonlyMap<unknown, OpenCallKind> = new Map(
  ['gateway', 'openrouter'].flatMap((prefix): [string, OpenCallKind][] => [
    [
      `${prefix}:bash`,
      { results: ['stdout', 'stderr', 'exitCode', 'error', 'container_id'], missing: commandItems },
    ],
    [`${prefix}:apply_patch`, { results: [], missing: patchItems }],
  ]),
)

const NO_OUTPUT = 'The client has sent no output of this call'

/** Keyed by the index of a call that was left open: the items that replace it. */
export function answersOfOpen(input: readonly InputItem[]): ReadonlyMap<number, readonly InputItem[]> {
  const answers = new Map<number, readonly InputItem[]>()
  if (!input.some(isOpen)) return answers
  const answeredIds = new Set<unknown>()
  for (const item of input) {
    if (item.type?.endsWith('_output') === true) answeredIds.add((item as Fields)['call_id'])
  }
  for (const [index, item] of input.entries()) {
    if (!isOpen(item)) continue
    const callId = callIdOf(item as Fields, index)
    const kind = OPEN_CALL_KINDS.get(item.type)
    const missingItems = kind?.missing(item as Fields, callId, answeredIds.has(callId))
    if (missingItems !== undefined) answers.set(index, missingItems as readonly InputItem[])
  }
  return answers
}

function isOpen(item: InputItem): boolean {
  const kind = OPEN_CALL_KINDS.get(item.type)
  return kind?.results.every(name => (item as Fields)[name] == null) === true
}

function commandItems(item: Fields, callId: string, isAnswered: boolean): readonly Fields[] {
  const { command, arguments: callArguments } = item
  const text =
    typeof callArguments === 'string' ? callArguments : JSON.stringify(command == null ? {} : { command })
  const call = { type: 'function_call', call_id: callId, name: 'bash', arguments: text }
  return isAnswered ? [call] : [call, { type: 'function_call_output', call_id: callId, output: NO_OUTPUT }]
}

function patchItems(item: Fields, callId: string, isAnswered: boolean): readonly Fields[] {
  if (isAnswered || item['operation'] == null) return [item]
  return [item, { type: 'apply_patch_call_output', call_id: callId, status: 'failed', output: NO_OUTPUT }]
}
