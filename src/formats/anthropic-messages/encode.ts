/**
 * Encodes a request as the body of POST /messages. Pure. Only fields named here are sent, and unknown fields of clients
 * of this API. The encoder drops parameters that this API lacks if they only tune a reply (penalties, log
 * probabilities, verbosity, seeds), and refuses a field with its path if dropping it would change the meaning of the
 * request.
 */
import { strings } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { withLastMarks } from '../marks/cache-marks.ts'
import { mayPay, withOwnMarks } from '../marks/own-marks.ts'
import { preparingEncoder, unknownFields } from '../outgoing.ts'
import { JSON_HINT } from '../preconditions/schemas.ts'
import { CONTINUE, CONTINUE_ADDED, preconditionsOf } from '../preconditions/table.ts'
import { withVersion } from './computer.ts'
import { cacheControl, type MessagesBlock } from './content.ts'
import { generation } from './generation.ts'
import { conversation, type MessagesTurn } from './input.ts'
import { encodeTools } from './tools.ts'

/** The latest version of the API, which this format implements. */
export const API_VERSION = '2023-06-01'
/** The API accepts compaction blocks, and makes them, only with this flag. */
export const COMPACTION_BETA = 'compact-2026-01-12'

/** The field with flags for features that are not out yet; they travel in a header. */
const BETAS_FIELD = 'betas'
const BETA_NAME = /^[\x21-\x2b\x2d-\x7e]{1,100}$/
/** The workspace that an account bills; it travels in a header. */
const WORKSPACE_FIELD = 'anthropic_workspace_id'
const WORKSPACE_HEADER = 'anthropic-workspace-id'

/** Service tiers by the caller's name. The API uses its default for others. */
const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['auto', 'auto'],
  ['default', 'standard_only'],
  ['priority', 'auto'],
  ['fast', 'auto'],
  ['ultrafast', 'auto'],
])

/** @throws GatewayError `unprocessable` naming what the Messages API cannot express */
function writeMessages(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const { request, stream, endUser, isOwnApi = false } = model
  refuseUnknownModes(request)
  const { efforts, lastTurn } = preconditionsOf('anthropic-messages', endpoint)
  const { system, turns, effort, hasCompaction, omissions } = conversation(request)
  const { quirks } = endpoint.provider
  const { tools, tool_choice, container } = encodeTools(request, !quirks.includes('no-strict-tools'))
  const {
    max_tokens,
    thinking,
    effort: level,
    sampling,
    changes,
  } = generation({
    request,
    effort,
    upstreamModel: endpoint.upstreamModel,
    efforts,
    isInterleaved: betasOf(request).some(beta => beta.startsWith('interleaved-thinking-')),
    maxOutputTokens: endpoint.maxOutputTokens,
    isThoughtMissing: () => isThoughtMissing(turns),
    isToolForced: tool_choice?.['type'] === 'any' || tool_choice?.['type'] === 'tool',
  })
  const finalTurn = turns.at(-1)
  const needsUserTurn = finalTurn?.role === 'assistant' && !isOwnApi && lastTurn === 'user'
  const messages =
    finalTurn?.role === 'assistant'
      ? [
          ...turns.slice(0, -1),
          { ...finalTurn, content: trimEnd(finalTurn.content) },
          ...(needsUserTurn ? [{ role: 'user', content: [{ type: 'text', text: CONTINUE }] }] : []),
        ]
      : turns

  const body: MessagesBlock = {
    ...unknownFields(request, OWN_NAMES),
    model: endpoint.upstreamModel,
    max_tokens,
    messages,
    ...sampling,
  }
  const hint = request.text?.format?.type === 'json_object' ? [{ type: 'text', text: JSON_HINT }] : []
  const versionedTools = withVersion(tools, endpoint.upstreamModel)
  const sendsUser = endUser !== null && !quirks.includes('no-user')
  const optional = {
    system: systemPrompt([...system, ...hint]),
    stream: stream ? true : null,
    thinking,
    tools: tools.length === 0 ? null : versionedTools.tools,
    tool_choice,
    container,
    output_config: outputConfig(request, level),
    stop_sequences: stopSequences(request),
    cache_control: cacheControl(request.cache_control),
    service_tier: SERVICE_TIERS.get(request.service_tier ?? ''),
    metadata: sendsUser ? { user_id: endUser } : null,
  }
  for (const [name, value] of Object.entries(optional)) if (value != null) body[name] = value

  const betas = new Set(betasOf(request))
  if (hasCompaction) betas.add(COMPACTION_BETA)
  if (versionedTools.beta !== null) betas.add(versionedTools.beta)
  const workspace = model.isOwnAccount === true ? workspaceOf(request) : null
  const plainHeaders = betas.size === 0 ? PLAIN_HEADERS : headersWith([...betas].join(','))
  const headers = workspace === null ? plainHeaders : { ...plainHeaders, [WORKSPACE_HEADER]: workspace }
  const markedBody = isOwnApi ? body : withLastMarks(body)
  return {
    path: '/messages',
    headers,
    body: mayPay(model, endpoint) ? withOwnMarks(markedBody, model.isSeen) : markedBody,
    ...(needsUserTurn || omissions.length > 0 || changes.length > 0
      ? { changes: [...(needsUserTurn ? CONTINUE_ADDED : []), ...changes, ...omissions] }
      : undefined),
  }
}

// The same object for the same headers, so that values derived from it can be cached.

type Headers = Readonly<Record<string, string>>

const PLAIN_HEADERS: Headers = { 'anthropic-version': API_VERSION }
/** Keyed by the names of the betas. Clients of one kind always ask for the same ones. */
const headersByBetas = new Map<string, Headers>()
const CACHED_HEADERS_MAX = 256

function headersWith(betas: string): Headers {
  let headers = headersByBetas.get(betas)
  if (headers === undefined) {
    headers = { ...PLAIN_HEADERS, 'anthropic-beta': betas }
    if (headersByBetas.size >= CACHED_HEADERS_MAX) headersByBetas.clear()
    headersByBetas.set(betas, headers)
  }
  return headers
}

export const encodeMessages = preparingEncoder('anthropic-messages', writeMessages)

/** Fields that the encoder writes itself: unknown fields of a caller cannot replace them. */
const OWN_NAMES: ReadonlySet<string> = new Set([
  'messages',
  'max_tokens',
  'system',
  'thinking',
  'output_config',
  'output_format',
  'stop_sequences',
  BETAS_FIELD,
  WORKSPACE_FIELD,
])

/** The betas that a client of this API's dialect requests. */
function betasOf(request: ResponsesRequest): readonly string[] {
  return strings((request as { readonly [BETAS_FIELD]?: unknown })[BETAS_FIELD]).filter(beta =>
    BETA_NAME.test(beta),
  )
}

function workspaceOf(request: ResponsesRequest): string | null {
  const workspace = (request as { readonly [WORKSPACE_FIELD]?: unknown })[WORKSPACE_FIELD]
  return typeof workspace === 'string' ? workspace : null
}

/** @throws GatewayError `unprocessable` for a feature that no API of Claude has */
export function refuseUnknownModes(request: ResponsesRequest): void {
  if (request.modalities?.includes('image') === true)
    throw inexpressible('modalities', 'this provider returns only text')
  if (request.prompt != null) throw inexpressible('prompt', 'this provider does not support stored prompts')
}

/** One plain text goes out as a string; only several texts or a cache mark need blocks. */
function systemPrompt(blocks: readonly MessagesBlock[]): unknown {
  const [first] = blocks
  if (first === undefined) return null
  return blocks.length === 1 && first['cache_control'] === undefined ? first['text'] : blocks
}

/** The API refuses to continue an assistant text that ends in white space. */
function trimEnd(content: readonly MessagesBlock[]): readonly MessagesBlock[] {
  const lastBlock = content.at(-1)
  if (lastBlock?.['type'] !== 'text') return content
  return [...content.slice(0, -1), { ...lastBlock, text: String(lastBlock['text']).trimEnd() }]
}

function outputConfig(request: ResponsesRequest, effort: string | null): MessagesBlock | null {
  const format = request.text?.format
  const schema =
    format?.type === 'json_schema' ? { format: { type: 'json_schema', schema: format.schema } } : null
  if (schema === null && effort === null) return null
  return effort === null ? schema : { ...schema, effort }
}

/** Omits empty and blank stop sequences, which the API refuses. */
export function stopSequences({ stop }: ResponsesRequest): readonly string[] | null {
  const stops = typeof stop === 'string' ? [stop] : (stop ?? [])
  const sequences = stops.filter(sequence => sequence.trim() !== '')
  return sequences.length === 0 ? null : sequences
}

/**
 * True if the last turns lack a thinking block that the API requires. With a thinking budget, a reply that continues
 * after tool results, or that was started by the caller, must begin with its thinking block. Turns from another
 * provider have none.
 */
function isThoughtMissing(allTurns: readonly MessagesTurn[]): boolean {
  const turns = allTurns.filter(turn => turn.role !== 'system')
  let index = turns.length - 1
  let firstTurn: MessagesTurn | undefined
  if (turns[index]?.role === 'assistant') firstTurn = turns[index--]
  while (index > 0 && turns[index]?.content.some(block => block['type'] === 'tool_result') === true) {
    firstTurn = turns[index - 1]
    index -= 2
  }
  const type = firstTurn?.content.find(block => block['type'] !== 'compaction')?.['type']
  return firstTurn !== undefined && type !== 'thinking' && type !== 'redacted_thinking'
}
