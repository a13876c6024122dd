/** The memory server tool: a key-value store of texts, per end user or per workspace. */
import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolEntry,
  ToolOutcome,
} from '../../exchange/server-tool.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { MemoryScope } from '../../storage/files.ts'
import type { Store } from '../../storage/store.ts'
import { requiredArgument, scopeOf, TextFault, textArgument } from './stored-texts.ts'

interface MemoryDeps {
  readonly store: Pick<Store, 'memory'>
  readonly clock: Clock
}

const ACTIONS = ['read', 'write', 'delete'] as const
type Action = (typeof ACTIONS)[number]
const MAX_KEY_CHARS = 256
const MAX_VALUE_CHARS = 16_384
/** Maximum entries of one end user or of the workspace itself, and of a workspace together with all its end users. */
const ENTRY_LIMITS = { perOwner: 1_000, perWorkspace: 100_000 }
/** Maximum keys that a read without a key shows. */
const MAX_LISTED_KEYS = 200

export function createMemory(deps: MemoryDeps): ServerTool {
  return {
    name: 'memory',
    open(entries, exchange) {
      const scopes = new Map(entries.map(entry => [entry.tool, memoryScope(entry, exchange)]))
      return {
        declare: () => entries.map(({ tool }) => declaration(tool)),
        firstForm: fieldsOf,
        run: call =>
          run(deps, exchange, scopes.get(call.tool) ?? { ...scopeOf(exchange), endUser: '' }, call),
      }
    },
  }
}

/** @throws GatewayError `invalid_request` if memory per end user is requested without an end user */
function memoryScope({ tool, path }: ToolEntry, exchange: Exchange): MemoryScope {
  const { user } = exchange.request
  const scope = tool.parameters?.['scope'] ?? (user == null ? 'workspace' : 'end_user')
  if (scope === 'workspace') return { ...scopeOf(exchange), endUser: '' }
  if (user == null || user === '')
    throw new GatewayError('invalid_request', `${path}.parameters.scope: end_user requires the field user`)
  return { ...scopeOf(exchange), endUser: user }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  return {
    tool,
    name: 'memory',
    description:
      'Keeps texts from one conversation to the next. read gives the value of a key, or all keys if none is given; write sets it; delete removes it.',
    parameters: objectSchema(['action'], {
      action: { type: 'string', enum: ACTIONS },
      key: { type: 'string', description: `At most ${MAX_KEY_CHARS} characters` },
      value: { type: 'string', description: `For write; at most ${MAX_VALUE_CHARS} characters` },
    }),
  }
}

function fieldsOf({ arguments: { action, key, value } }: ToolCall): Readonly<Record<string, unknown>> {
  return {
    ...(ACTIONS.some(candidate => candidate === action) ? { action } : {}),
    ...(typeof key === 'string' ? { key } : {}),
    ...(action === 'write' && typeof value === 'string' ? { value } : {}),
  }
}

async function run(
  deps: MemoryDeps,
  exchange: Exchange,
  scope: MemoryScope,
  call: ToolCall,
): Promise<ToolOutcome> {
  const { arguments: args } = call
  try {
    const action = ACTIONS.find(candidate => candidate === args['action'])
    if (action === undefined) throw new TextFault(`action: must be one of ${ACTIONS.join(', ')}`)
    if (action === 'write' && exchange.zeroRetention)
      throw new TextFault('A guardrail forbids storing anything from this request')
    const { shown, result } = await ACTION_RUNS[action](deps, scope, args)
    return { item: { ...fieldsOf(call), ...shown }, result: JSON.stringify(result) }
  } catch (thrown) {
    if (!(thrown instanceof TextFault)) throw thrown
    return {
      item: { ...fieldsOf(call), status: 'incomplete' },
      result: JSON.stringify({ error: thrown.message }),
    }
  }
}

interface MemoryReply {
  readonly shown?: { readonly value: string }
  readonly result: object
}

const ACTION_RUNS: Readonly<
  Record<Action, (deps: MemoryDeps, scope: MemoryScope, args: ToolCall['arguments']) => Promise<MemoryReply>>
> = {
  async read({ store }, scope, args) {
    const key = textArgument(args, 'key')
    if (key === null || key === '') {
      const entries = await store.memory.list(scope, MAX_LISTED_KEYS + 1)
      const keys = entries.slice(0, MAX_LISTED_KEYS).map(entry => entry.key)
      return { result: { keys, has_more: entries.length > MAX_LISTED_KEYS } }
    }
    const entry = await store.memory.find(scope, checkedKey(key))
    if (entry === null) throw new TextFault('Nothing is stored under this key')
    return { shown: { value: entry.value }, result: entry }
  },
  async write({ store, clock }, scope, args) {
    const key = checkedKey(requiredArgument(args, 'key'))
    const value = storableText(requiredArgument(args, 'value'), 'value', MAX_VALUE_CHARS)
    const entry = { key, value, updatedAt: isoInstant(clock.nowMs()) }
    if (!(await store.memory.write(scope, entry, ENTRY_LIMITS)))
      throw new TextFault('The memory is full: delete entries that are no longer needed')
    return { result: { key, written: true } }
  },
  async delete({ store }, scope, args) {
    const key = checkedKey(requiredArgument(args, 'key'))
    return { result: { key, deleted: await store.memory.remove(scope, key) } }
  },
}

function checkedKey(key: string): string {
  if (key === '') throw new TextFault('key: is required')
  return storableText(key, 'key', MAX_KEY_CHARS)
}

/** The text without what databases cannot store. @throws TextFault if it is too long */
function storableText(text: string, name: string, maxChars: number): string {
  if (text.length > maxChars) throw new TextFault(`${name}: must have at most ${maxChars} characters`)
  return text.replaceAll('\0', '').toWellFormed()
}
