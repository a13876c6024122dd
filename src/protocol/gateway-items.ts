/**
 * Items of tools that ran on our side (`gateway:<x>`), as clients replay them. The public spelling
 * `openrouter:<x>` is an alias of each, and an item keeps the spelling its caller used. Pure.
 */
import { type TProperties, type TSchema, Type } from '@sinclair/typebox'
import { AnyObject, maybe, oneOf } from './schema.ts'

const text = maybe(Type.String())
const integer = maybe(Type.Integer())
const texts = maybe(Type.Array(Type.String()))
const objects = maybe(Type.Array(AnyObject))

const plain = maybe(oneOf('in_progress', 'completed', 'incomplete'))
const failable = maybe(oneOf('in_progress', 'completed', 'incomplete', 'failed'))

/** Own fields of each kind; `id` and `status` are added to all. */
const FIELDS = {
  web_search: {
    action: maybe(Type.Object({ type: Type.Literal('search'), query: text, sources: objects })),
    status: plain,
  },
  web_fetch: { url: text, title: text, content: text, httpStatus: integer, error: text, status: plain },
  datetime: { datetime: Type.String(), timezone: Type.String(), status: plain },
  image_generation: {
    result: text,
    imageUrl: text,
    imageB64: text,
    prompt: text,
    revisedPrompt: text,
    status: plain,
  },
  fusion: {
    analysis: maybe(AnyObject),
    responses: maybe(Type.Array(Type.Object({ model: Type.String(), content: text }))),
    failed_models: maybe(
      Type.Array(Type.Object({ model: Type.String(), error: Type.String(), status_code: integer })),
    ),
    sources: objects,
    error: text,
    failure_reason: text,
    status: plain,
  },
  advisor: { advice: text, prompt: text, model: text, instance_name: text, error: text, status: failable },
  subagent: {
    call_id: text,
    task_name: text,
    task_description: text,
    outcome: text,
    model: text,
    name: text,
    instance_name: text,
    error: text,
    status: failable,
  },
  bash: {
    command: text,
    stdout: text,
    stderr: text,
    exitCode: integer,
    arguments: text,
    call_id: text,
    container_id: text,
    files: objects,
    error: text,
    status: failable,
  },
  shell: {
    action: maybe(
      Type.Object({
        commands: Type.Array(Type.String()),
        max_output_length: integer,
        timeout_ms: maybe(Type.Number()),
      }),
    ),
    output: objects,
    arguments: text,
    call_id: text,
    container_id: text,
    files: objects,
    error: text,
    status: failable,
  },
  apply_patch: { call_id: text, operation: maybe(AnyObject), status: plain },
  files: {
    operation: text,
    file_id: text,
    filename: text,
    result: text,
    error: text,
    arguments: text,
    call_id: text,
    status: plain,
  },
  experimental__search_models: { query: text, arguments: text, status: plain },
  tool_search: { query: text, status: plain },
  code_interpreter: {
    code: text,
    language: text,
    stdout: text,
    stderr: text,
    exitCode: integer,
    status: plain,
  },
  file_search: { queries: texts, status: plain },
  browser_use: { action: text, screenshotB64: text, status: plain },
  text_editor: {
    command: maybe(oneOf('view', 'create', 'str_replace', 'insert')),
    filePath: text,
    status: plain,
  },
  memory: { action: maybe(oneOf('read', 'write', 'delete')), key: text, value: text, status: plain },
  mcp: { serverLabel: text, toolName: text, status: plain },
} satisfies Record<string, TProperties>

type Name = keyof typeof FIELDS
type Spelling = `gateway:${Name}` | `openrouter:${Name}`

/** An item of a tool that ran on our side. Its fields are checked, but only its own tool reads them. */
export interface GatewayToolItem {
  type: Spelling
  id?: string | null
  status?: string | null
  [field: string]: unknown
}

function itemOf(name: Name): TSchema {
  return Type.Object({
    type: Type.Union([Type.Literal(`gateway:${name}`), Type.Literal(`openrouter:${name}`)]),
    id: text,
    ...FIELDS[name],
  })
}

/** Both spellings of every kind. */
export const gatewayItems = Object.fromEntries(
  (Object.keys(FIELDS) as Name[]).flatMap(name => {
    const schema = itemOf(name)
    return [
      [`gateway:${name}`, schema],
      [`openrouter:${name}`, schema],
    ]
  }),
) as unknown as Record<Spelling, ReturnType<typeof Type.Unsafe<GatewayToolItem>>>
