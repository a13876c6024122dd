/** Calls of server tools in one turn: takes their deltas out of the reply before the client sees them. Pure. */
import type { ItemStart } from '../formats/format.ts'
import { itemId } from '../ids.ts'
import type { GatewayTool } from '../protocol/gateway-tools.ts'
import type { InputItem, OutputItem } from '../protocol/items.ts'
import type { ServerTool } from '../tools/tool.ts'
import type { Content } from './answer/assemble.ts'

type CallStart = Extract<ItemStart, { type: 'function_call' }>

/** A server tool as the request names it. */
export interface NamedTool {
  readonly server: ServerTool
  readonly tool: GatewayTool
}

/** A function that the model sees for a server tool. */
export interface DeclaredFunction extends NamedTool {
  /** The declared name, without the suffix that keeps it apart from others. */
  readonly name: string
}

/** A call of a server tool as the model made it. */
export interface PendingCall {
  readonly declared: DeclaredFunction
  readonly callId: string
  /** JSON, as the model wrote it. */
  arguments: string
  readonly start: CallStart
  fields: Readonly<Record<string, unknown>> | null
}

export class ToolCalls {
  readonly #declared: ReadonlyMap<string, DeclaredFunction>
  readonly #open = new Map<number, PendingCall>()
  /** In the order in which the model made them. */
  readonly pending: PendingCall[] = []

  /** `declared`: server tools by the name that the model sees. */
  constructor(declared: ReadonlyMap<string, DeclaredFunction>) {
    this.#declared = declared
  }

  /** True when the delta belongs to a call of a server tool. */
  take(delta: Content): boolean {
    if (delta.kind === 'open') {
      if (delta.start.type !== 'function_call') return false
      const declared = this.#declared.get(delta.start.name)
      if (declared === undefined) return false
      const callId = delta.start.callId ?? itemId('fc').replace('fc_', 'call_')
      const call: PendingCall = { declared, callId, arguments: '', start: delta.start, fields: null }
      this.#open.set(delta.item, call)
      this.pending.push(call)
      return true
    }
    const call = this.#open.get(delta.item)
    if (call === undefined) return false
    if (delta.kind === 'arguments') call.arguments += delta.text
    else if (delta.kind === 'close') call.fields = delta.fields
    return true
  }
}

/** The call as the item that the model gets back, and that plugins judge. */
export function callItem({ callId, arguments: text, start, fields }: PendingCall): OutputItem & InputItem {
  return {
    ...start.extra,
    ...fields,
    id: start.id ?? itemId('fc'),
    type: 'function_call',
    status: 'completed',
    call_id: callId,
    name: start.name,
    arguments: text === '' ? '{}' : text,
  } as OutputItem & InputItem
}
