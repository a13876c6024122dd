/**
 * Translates a generateContent body to a request. Pure. Hot path: one pass over the names, one check of the body, and
 * one walk over its contents. Errors name fields of the client's body and never repeat what the client sent. The HTTP
 * operation puts `model`, `stream` and `alt`, which are in the URL, into the body.
 */
import { GatewayError } from '../../base/errors.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { type Offering, refusal, useDefaultModel } from '../../protocol/json/request-parser.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Dialect } from '../dialect.ts'
import { spellingCheck } from '../field-names.ts'
import { type ForeignField, fieldsWithout, refuseForeign } from '../translation.ts'
import { GeminiBody } from './body-schema.ts'
import { setConfig, tierOf } from './config.ts'
import { GeminiConversation } from './contents.ts'
import { camelCase, inUsualSpelling } from './names.ts'
import { inGeminiNames, withOrigin } from './paths.ts'
import { hubToolChoice, hubTools } from './tools.ts'

/** Fields that have another name or form in a request. */
const TRANSLATED_FIELDS: ReadonlySet<string> = new Set([
  'contents',
  'systemInstruction',
  'generationConfig',
  'tools',
  'toolConfig',
  'serviceTier',
  'alt',
])

/**
 * Fields of other APIs, with their equivalents in this one. Passing them on as unknown fields would lose them silently.
 */
const FOREIGN_FIELDS: readonly ForeignField[] = [
  ['messages', 'use contents'],
  ['input', 'use contents'],
  ['prompt', 'use contents'],
  ['system', 'use systemInstruction'],
  ['instructions', 'use systemInstruction'],
  ['max_tokens', 'use generationConfig.maxOutputTokens'],
  ['max_output_tokens', 'use generationConfig.maxOutputTokens'],
  ['temperature', 'use generationConfig.temperature'],
  ['top_p', 'use generationConfig.topP'],
  ['topP', 'use generationConfig.topP'],
  ['top_k', 'use generationConfig.topK'],
  ['topK', 'use generationConfig.topK'],
  ['seed', 'use generationConfig.seed'],
  ['stop', 'use generationConfig.stopSequences'],
  ['stop_sequences', 'use generationConfig.stopSequences'],
  ['text', 'use generationConfig.responseJsonSchema'],
  ['response_format', 'use generationConfig.responseJsonSchema'],
  ['reasoning', 'use generationConfig.thinkingConfig'],
  ['reasoning_effort', 'use generationConfig.thinkingConfig'],
  ['tool_choice', 'use toolConfig.functionCallingConfig'],
  ['config', 'its fields belong in the body itself and in generationConfig'],
  ['previous_response_id', 'send the whole conversation in contents'],
]

const checkBody = bodyCheck(GeminiBody)
const checkSpelling = spellingCheck(GeminiBody, {
  moreNames: FOREIGN_FIELDS.map(([name]) => name),
  usualSpelling: camelCase,
})

/** Creates the parser of these bodies. It throws GatewayError `invalid_request` that names a field of the body. */
export function createGeminiParser(offering: Offering): Dialect['parse'] {
  return value => parseGemini(value, offering)
}

function parseGemini(value: unknown, offering: Offering): ResponsesRequest {
  checkSpelling(value)
  const body = checkBody(inUsualSpelling(value))
  refuseForeign(body, FOREIGN_FIELDS, 'generateContent')
  const fields = fieldsWithout(body, TRANSLATED_FIELDS)
  const conversation = new GeminiConversation()
  const instruction = body.systemInstruction?.parts ?? []
  // A single text becomes `instructions`, as in other APIs; several stay separate.
  if (instruction.length === 1 && instruction[0]?.text != null) fields['instructions'] = instruction[0].text
  else if (body.systemInstruction != null) conversation.addSystem(body.systemInstruction)
  for (const [index, content] of body.contents.entries()) conversation.add(content, index)
  fields['input'] = conversation.items
  if (body.generationConfig != null) setConfig(body.generationConfig, fields)
  const { tools, paths } = hubTools(body.tools ?? [])
  if (tools.length > 0) fields['tools'] = tools
  const choice = hubToolChoice(body)
  if (choice !== null && tools.length > 0) fields['tool_choice'] = choice
  setOwnFields(body, fields)
  const isArray = (body as { alt?: unknown }).alt !== 'sse'
  const origin = { positions: conversation.positions, tools: paths, isArray }
  const request = withOrigin(fields as unknown as ResponsesRequest, origin)
  useDefaultModel(request, offering)
  const problem = refusal(request, offering)
  if (problem !== null) throw new GatewayError('invalid_request', inGeminiNames(problem, request))
  return request
}

/** Settings that only this API has, other than those in `generationConfig`. */
function setOwnFields(body: GeminiBody, fields: Record<string, unknown>): void {
  const tier = tierOf(body)
  if (tier !== null) fields['service_tier'] = tier
  if (body.toolConfig == null) return
  const { functionCallingConfig, ...otherSettings } = body.toolConfig
  const ownFields: Record<string, unknown> = { ...otherSettings }
  if (functionCallingConfig?.mode === 'VALIDATED') ownFields['mode'] = 'VALIDATED'
  if (Object.keys(ownFields).length > 0) fields['toolConfig'] = ownFields
}
