/**
 * A Request as the body of POST /messages. The body is built field by field, so that nothing leaves that is not
 * named here: gateway settings, identities, and fields that only other providers know stay. Parameters that this
 * API lacks but that only tune a reply (penalties, log probabilities, verbosity, seeds) are dropped; what would
 * change the meaning of the request is refused with its path. Pure.
 */
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { inexpressible } from '../inexpressible.ts'
import { conversation } from './input.ts'
import { cacheControl, type WireBlock } from './parts.ts'
import { generation } from './thinking.ts'
import { type NamedTool, toolbox } from './tools.ts'

/** The version of the API this format was written against; there has been no later one since. */
const API_VERSION = '2023-06-01'
/** Compaction blocks in the input are known only with this flag. */
const COMPACTION_BETA = 'compact-2026-01-12'

/** What the caller may spend on capacity; tiers that this API does not sell are left to its default. */
const TIERS: ReadonlyMap<string, string> = new Map([
  ['auto', 'auto'],
  ['default', 'standard_only'],
  ['priority', 'auto'],
  ['fast', 'auto'],
  ['ultrafast', 'auto'],
])

/** @throws GatewayError `unprocessable` naming what the Messages API cannot express */
export function encodeMessages({ request, stream, endUser }: ModelRequest, endpoint: Endpoint): WireRequest {
  refuseUnknownModes(request)
  const { system, turns, tools: added, effort, compacted } = conversation(request)
  const own = (request.tools ?? []).map((tool, index): NamedTool => ({ tool, path: `tools[${index}]` }))
  const { quirks } = endpoint.provider
  const { tools, tool_choice, container } = toolbox(
    request,
    [...own, ...added],
    !quirks.includes('no-strict-tools'),
  )
  const {
    max_tokens,
    thinking,
    effort: level,
    sampling,
  } = generation({
    request,
    effort,
    upstreamModel: endpoint.upstreamModel,
    maxOutputTokens: endpoint.maxOutputTokens,
    turns,
    toolForced: tool_choice?.['type'] === 'any' || tool_choice?.['type'] === 'tool',
  })
  const last = turns.at(-1)
  const messages =
    last?.role === 'assistant' ? [...turns.slice(0, -1), { ...last, content: trimmed(last.content) }] : turns

  const body: WireBlock = { model: endpoint.upstreamModel, max_tokens, messages, ...sampling }
  const put = (name: string, value: unknown): void => {
    if (value !== null && value !== undefined) body[name] = value
  }
  put('system', systemPrompt(system))
  put('stream', stream ? true : null)
  put('thinking', thinking)
  put('tools', tools.length === 0 ? null : tools)
  put('tool_choice', tool_choice)
  put('container', container)
  put('output_config', outputConfig(request, level))
  put('stop_sequences', stopSequences(request))
  put('cache_control', cacheControl(request.cache_control))
  put('service_tier', TIERS.get(request.service_tier ?? ''))
  const named = endUser !== null && !quirks.includes('no-user')
  put('metadata', named ? { user_id: endUser } : null)

  const headers: Record<string, string> = { 'anthropic-version': API_VERSION }
  if (compacted) headers['anthropic-beta'] = COMPACTION_BETA
  return { path: '/messages', headers, body }
}

function refuseUnknownModes(request: ResponsesRequest): void {
  if (request.modalities?.includes('image') === true)
    throw inexpressible('modalities', 'this provider writes text only')
  if (request.prompt != null) throw inexpressible('prompt', 'this provider has no stored prompts')
}

/** One plain text is sent as such; blocks are needed only to keep several apart or to mark one for the cache. */
function systemPrompt(blocks: readonly WireBlock[]): unknown {
  const [only] = blocks
  if (only === undefined) return null
  return blocks.length === 1 && only['cache_control'] === undefined ? only['text'] : blocks
}

/** A reply that goes on from given words may not begin after white space. */
function trimmed(content: readonly WireBlock[]): readonly WireBlock[] {
  const end = content.at(-1)
  if (end?.['type'] !== 'text') return content
  return [...content.slice(0, -1), { ...end, text: String(end['text']).trimEnd() }]
}

function outputConfig(request: ResponsesRequest, effort: string | null): WireBlock | null {
  const format = request.text?.format
  if (format?.type === 'json_object') {
    throw inexpressible('text.format', 'this provider writes JSON only to a schema: use json_schema')
  }
  const schema =
    format?.type === 'json_schema' ? { format: { type: 'json_schema', schema: format.schema } } : null
  if (schema === null && effort === null) return null
  return effort === null ? schema : { ...schema, effort }
}

/** An empty sequence would end every reply at once; the API refuses it. */
function stopSequences({ stop }: ResponsesRequest): readonly string[] | null {
  const given = typeof stop === 'string' ? [stop] : (stop ?? [])
  const sequences = given.filter(one => one !== '')
  return sequences.length === 0 ? null : sequences
}
