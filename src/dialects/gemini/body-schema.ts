/** The schema of the generateContent body. Pure. Objects are open: unknown kinds are passed on to Google. */
import { type Static, Type } from '@sinclair/typebox'
import { AnyObject, maybe, oneOf, orNull } from '../../protocol/json/schema.ts'
import { hub, SAME_NAME } from '../hub-fields.ts'

/** More than any client sends. Each one is searched for in every piece of a reply, so the number is limited. */
const STOP_SEQUENCES_MAX = 64
/** As long as the API allows; dots, colons and hyphens may be in it. */
const FUNCTION_NAME_PATTERN = '^[a-zA-Z0-9_.:-]{1,128}$'

const filled = Type.String({ minLength: 1 })

// Contents

const InlineData = Type.Object({ mimeType: filled, data: Type.String(), displayName: maybe(Type.String()) })
const FileData = Type.Object({
  fileUri: filled,
  mimeType: maybe(Type.String()),
  displayName: maybe(Type.String()),
})

export const Part = Type.Object({
  text: maybe(Type.String()),
  thought: maybe(Type.Boolean()),
  thoughtSignature: maybe(Type.String()),
  inlineData: maybe(InlineData),
  fileData: maybe(FileData),
  functionCall: maybe(Type.Object({ id: maybe(Type.String()), name: filled, args: maybe(AnyObject) })),
  functionResponse: maybe(
    Type.Object({
      id: maybe(Type.String()),
      name: filled,
      response: maybe(AnyObject),
      parts: maybe(Type.Array(Type.Object({ inlineData: maybe(InlineData), fileData: maybe(FileData) }))),
    }),
  ),
  executableCode: maybe(Type.Object({ code: Type.String(), id: maybe(Type.String()) })),
  codeExecutionResult: maybe(
    Type.Object({ outcome: maybe(Type.String()), output: maybe(Type.String()), id: maybe(Type.String()) }),
  ),
})
export type Part = Static<typeof Part>

export const GeminiContent = Type.Object({ role: maybe(Type.String()), parts: maybe(Type.Array(Part)) })
export type GeminiContent = Static<typeof GeminiContent>

// Tools

const GeminiFunction = Type.Object({
  name: Type.String({
    pattern: FUNCTION_NAME_PATTERN,
    description: 'a name of 1 to 128 letters, digits, dots, colons, underscores and hyphens',
  }),
  description: maybe(Type.String()),
  parameters: maybe(AnyObject),
  parametersJsonSchema: maybe(AnyObject),
})
export type GeminiFunction = Static<typeof GeminiFunction>

/** Each field is a tool; the gateway's own tools have a type. */
export const GeminiTool = Type.Object({
  functionDeclarations: maybe(Type.Array(GeminiFunction)),
  googleSearch: maybe(Type.Object({ excludeDomains: maybe(Type.Array(Type.String())) })),
  googleSearchRetrieval: maybe(AnyObject),
  urlContext: maybe(AnyObject),
  codeExecution: maybe(AnyObject),
})
export type GeminiTool = Static<typeof GeminiTool>

const ToolConfig = Type.Object({
  functionCallingConfig: maybe(
    Type.Object({
      mode: maybe(oneOf('MODE_UNSPECIFIED', 'AUTO', 'ANY', 'NONE', 'VALIDATED')),
      allowedFunctionNames: maybe(Type.Array(filled)),
    }),
  ),
})

// Settings

export const GenerationConfig = Type.Object({
  stopSequences: maybe(Type.Array(Type.String(), { maxItems: STOP_SEQUENCES_MAX })),
  responseMimeType: maybe(Type.String()),
  responseSchema: maybe(AnyObject),
  responseJsonSchema: maybe(AnyObject),
  _responseJsonSchema: maybe(AnyObject),
  candidateCount: maybe(Type.Integer({ minimum: 1 })),
  maxOutputTokens: hub.max_output_tokens,
  temperature: hub.temperature,
  topP: hub.top_p,
  topK: hub.top_k,
  seed: hub.seed,
  presencePenalty: hub.presence_penalty,
  frequencyPenalty: hub.frequency_penalty,
  responseLogprobs: maybe(Type.Boolean()),
  logprobs: hub.top_logprobs,
  thinkingConfig: maybe(
    Type.Object({
      includeThoughts: maybe(Type.Boolean()),
      thinkingBudget: maybe(Type.Integer({ minimum: -1 })),
      thinkingLevel: maybe(Type.String()),
    }),
  ),
  responseModalities: maybe(Type.Array(Type.String())),
  imageConfig: maybe(AnyObject),
})
export type GenerationConfig = Static<typeof GenerationConfig>

/** Settings of the gateway. Sampling has its place in `generationConfig`. */
const {
  temperature: _temperature,
  top_p: _topP,
  top_k: _topK,
  seed: _seed,
  frequency_penalty: _frequency,
  presence_penalty: _presence,
  ...GATEWAY_FIELDS
} = SAME_NAME

export const GeminiBody = Type.Object({
  ...GATEWAY_FIELDS,
  contents: Type.Array(GeminiContent, { minItems: 1 }),
  systemInstruction: maybe(GeminiContent),
  generationConfig: maybe(GenerationConfig),
  tools: maybe(Type.Array(GeminiTool)),
  toolConfig: maybe(ToolConfig),
  safetySettings: maybe(Type.Array(AnyObject)),
  cachedContent: maybe(Type.String()),
  serviceTier: maybe(Type.String()),
  metadata: orNull(hub.metadata),
})
export type GeminiBody = Static<typeof GeminiBody>
