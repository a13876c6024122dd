/**
 * Encodes a request as the body of `generateContent`. Only fields named here are sent, and unknown fields of clients of
 * this API. Pure.
 */
import { type Json, record, strings } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change, ModelRequest, WireRequest } from '../format.ts'
import { preparingEncoder, unknownFields } from '../outgoing.ts'
import { CONTINUE, CONTINUE_ADDED, preconditionsOf } from '../preconditions/table.ts'
import { imageConfig } from './images.ts'
import { encodeContents } from './input.ts'
import { demandsSignatures, modelPath, thinkingConfig, unstoppedThinking } from './model.ts'
import { encodeTools } from './tools.ts'

/** @throws GatewayError `unprocessable` with the path of a field that Gemini cannot express. */
function writeGemini({ request, stream, isOwnApi }: ModelRequest, endpoint: Endpoint): WireRequest {
  const model = endpoint.upstreamModel
  const path = modelPath(model)
  const { contents, system, hasBegin, omissions } = encodeContents(request.input, demandsSignatures(model))
  const instructions = [request.instructions, ...system].filter(text => text != null && text !== '')
  const texts = instructions.map(text => ({ text }))
  if (contents.length === 0 && texts.length === 0) {
    throw inexpressible('input', 'must not be empty')
  }
  const { lastTurn, hosted } = preconditionsOf('google-gemini', endpoint)
  const needsUserTurn = lastTurn === 'user' && isOwnApi !== true && contents.at(-1)?.['role'] === 'model'
  if (needsUserTurn) contents.push({ role: 'user', parts: [{ text: CONTINUE }] })
  const { tools, toolConfig, omittedTools } = encodeTools(request, model, hosted)
  const config = generationConfig(request, endpoint)
  // Gemini does not answer instructions alone, so they become a user turn.
  const prompt = contents.length === 0 ? [{ role: 'user', parts: texts }] : contents
  const hasOnlyInstructions = texts.length > 0 && contents.length === 0
  const additions = hasBegin ? BEGIN_ADDED : hasOnlyInstructions ? INSTRUCTIONS_MOVED : []
  const thinkingChanges = unstoppedThinking(request, model)
  const isChanged =
    needsUserTurn || omittedTools.length > 0 || omissions.length > 0 || thinkingChanges !== null
  const changes = isChanged
    ? [
        ...additions,
        ...(needsUserTurn ? CONTINUE_ADDED : []),
        ...omittedTools,
        ...(thinkingChanges ?? []),
        ...omissions,
      ]
    : additions
  return {
    path: `${path}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    body: {
      ...(texts.length > 0 && contents.length > 0 ? { systemInstruction: { parts: texts } } : {}),
      contents: prompt,
      ...(tools.length > 0 ? { tools } : {}),
      ...(toolConfig === null ? {} : { toolConfig }),
      ...(Object.keys(config).length > 0 ? { generationConfig: config } : {}),
      // Only clients of this API have such fields.
      ...unknownFields(request, COMBINED_FIELDS),
    },
    ...(changes.length === 0 ? undefined : { changes }),
  }
}

const BEGIN_ADDED: readonly Change[] = [
  {
    field: 'input[0]',
    action: 'added',
    reason: 'the provider requires a user message before calls: "Begin."',
  },
]
const INSTRUCTIONS_MOVED: readonly Change[] = [
  {
    field: 'instructions',
    action: 'moved',
    reason: 'the provider requires a message besides the instructions',
  },
]

export const encodeGemini = preparingEncoder('google-gemini', writeGemini)

/** Fields of the body that combine several fields of a client of this API. */
const COMBINED_FIELDS: ReadonlySet<string> = new Set([
  'contents',
  'generationConfig',
  'toolConfig',
  'tools',
  'systemInstruction',
])

function generationConfig(request: ResponsesRequest, endpoint: Endpoint): Json {
  const ownConfig = record((request as { readonly generationConfig?: unknown }).generationConfig)
  const config: Record<string, unknown> = { ...ownConfig }
  const set = (name: string, value: unknown) => {
    if (value !== undefined && value !== null) config[name] = value
  }
  set('temperature', request.temperature)
  set('topP', request.top_p)
  set('topK', request.top_k)
  set('maxOutputTokens', request.max_output_tokens)
  set('presencePenalty', request.presence_penalty)
  set('frequencyPenalty', request.frequency_penalty)
  const { stop } = request
  const stops = strings(typeof stop === 'string' ? [stop] : stop)
  if (stops.length > 0) config['stopSequences'] = stops
  // Google accepts only seeds of 32 bits.
  if (Number.isSafeInteger(request.seed)) config['seed'] = Number(request.seed) % 2 ** 31
  if (request.top_logprobs != null && request.top_logprobs > 0) {
    config['responseLogprobs'] = true
    config['logprobs'] = request.top_logprobs
  }
  const format = request.text?.format
  if (format != null && format.type !== 'text') {
    config['responseMimeType'] = 'application/json'
    if (format.type === 'json_schema') {
      const { $schema: _dialect, ...schema } = format.schema
      config['responseJsonSchema'] = schema
    }
  }
  if (request.modalities?.includes('image') === true)
    config['responseModalities'] = request.modalities.map(modality => modality.toUpperCase())
  set('imageConfig', imageConfig(request))
  set('thinkingConfig', thinkingConfig(request, endpoint))
  return config
}
