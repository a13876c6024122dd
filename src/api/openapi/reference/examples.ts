/** Example requests for an operation in curl, Python and JavaScript, generated from the OpenAPI document. Pure. */
import { type Fields, fields, isObject, list } from './html.ts'

/** Placeholder for the URL of the reader's gateway. The document never contains it. */
export const READER_URL = '\uE000'

/** The reader's environment in JavaScript; this process does not read it. */
const ENVIRONMENT = ['process', 'env'].join('.')

export const LANGUAGES = ['curl', 'python', 'javascript'] as const

export interface PlacedOperation {
  readonly method: string
  readonly path: string
  readonly operation: Fields
}

interface ExampleRequest {
  readonly method: string
  /** Relative to the URL, with `{NAME}` for each value that the reader must fill in. */
  readonly path: string
  /** The variable with the key; null if no key is needed. */
  readonly key: 'KEY' | 'MANAGEMENT_KEY' | null
  readonly json: unknown
  /** Fields of a form; null: the body, if any, is JSON. */
  readonly form: Fields | null
  readonly isStream: boolean
  readonly answer: 'json' | 'text' | 'none'
}

export function requestExamples(
  placed: PlacedOperation,
): Readonly<Record<(typeof LANGUAGES)[number], string>> {
  const request = exampleRequest(placed)
  return { curl: inCurl(request), python: inPython(request), javascript: inJavaScript(request) }
}

function exampleRequest({ method, path, operation }: PlacedOperation): ExampleRequest {
  const servers = operation['servers']
  const base = servers === undefined ? '/v1' : String(fields(list(servers)[0])['url'] ?? '')
  const query = list(operation['parameters'])
    .map(fields)
    .filter(parameter => parameter['in'] === 'query' && parameter['required'] === true)
    .map(({ name }) => `${String(name)}={${variable(String(name))}}`)
  const pathWithVariables = path.replace(/\{(\w+)\}/g, (_, name: string) => `{${variable(name)}}`)
  const content = fields(fields(operation['requestBody'])['content'])
  const form = fields(content['multipart/form-data'])['examples']
  const json = unstreamedExample(fields(content['application/json'])['examples'])
  const answers = fields(fields(fields(operation['responses'])['200'])['content'])
  const isStream = isObject(json) ? json['stream'] === true : !('application/json' in answers)
  return {
    method,
    path: `${base}${pathWithVariables}${query.length === 0 ? '' : `?${query.join('&')}`}`,
    key: keyOf(operation),
    json,
    form: form === undefined ? null : fields(fields(Object.values(fields(form))[0])['value']),
    isStream: isStream && 'text/event-stream' in answers,
    answer: answerOf(method, operation, isStream),
  }
}

/** An example without streaming, if there is one. */
function unstreamedExample(examples: unknown): unknown {
  const values = Object.values(fields(examples)).map(example => fields(example)['value'])
  return values.find(value => fields(value)['stream'] !== true) ?? values[0]
}

/** `{id}` is `$ID` in a shell. */
function variable(name: string): string {
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()
}

function keyOf(operation: Fields): ExampleRequest['key'] {
  const names = list(operation['security']).flatMap(requirement => Object.keys(fields(requirement)))
  if (names.includes('apiKey')) return 'KEY'
  return names.includes('managementKey') ? 'MANAGEMENT_KEY' : null
}

function answerOf(method: string, operation: Fields, isStream: boolean): ExampleRequest['answer'] {
  if (method === 'HEAD') return 'none'
  const success = Object.entries(fields(operation['responses'])).find(([status]) => /^2/.test(status))
  const isJson = 'application/json' in fields(fields(success?.[1])['content'])
  return isJson && !isStream ? 'json' : 'text'
}

/** Longer requests have one line per field. */
const ONE_LINE_CHARS = 70

function inCurl({ method, path, key, json, form, isStream }: ExampleRequest): string {
  const url = `${READER_URL}${path.replace(/\{(\w+)\}/g, '$${$1}')}`
  const isPlain = method === 'GET' || (method === 'POST' && (json !== undefined || form !== null))
  const verb = method === 'HEAD' ? ' -I' : isPlain ? '' : ` -X ${method}`
  const words = [`curl${isStream ? ' -N' : ''}${verb} "${url}"`]
  if (key !== null) words.push(`-H "Authorization: Bearer $${key}"`)
  for (const [name, value] of Object.entries(form ?? {}))
    words.push(name === 'file' ? '-F file=@notes.txt' : `-F ${name}=${String(value)}`)
  if (json !== undefined)
    words.push("-H 'Content-Type: application/json'", `-d '${jsonText(json).replaceAll("'", "'\\''")}'`)
  return words.join(' \\\n  ')
}

function inPython({ method, path, key, json, form, isStream, answer }: ExampleRequest): string {
  const lines = [`    ${pythonText(`${READER_URL}${path}`)},`]
  if (key !== null) lines.push(`    headers={"Authorization": f"Bearer {os.environ['${key}']}"},`)
  for (const [name, value] of Object.entries(form ?? {}))
    lines.push(
      name === 'file' ? '    files={"file": open("notes.txt", "rb")},' : `    data={"${name}": "${value}"},`,
    )
  if (json !== undefined) lines.push(`    json=${indent(pythonValue(json), '    ')},`)
  if (isStream) lines.push('    stream=True,')
  const call = `reply = requests.${method.toLowerCase()}(\n${lines.join('\n')}\n)`
  const imports = key === null && !path.includes('{') ? 'import requests' : 'import os, requests'
  const callText = isStream
    ? 'for line in reply.iter_lines(decode_unicode=True):\n    print(line)'
    : { json: 'print(reply.json())', text: 'print(reply.text)', none: 'print(reply.status_code)' }[answer]
  return `${imports}\n\n${call}\n${callText}`
}

function pythonText(url: string): string {
  return url.includes('{') ? `f"${url.replace(/\{(\w+)\}/g, "{os.environ['$1']}")}"` : `"${url}"`
}

/** A value as a Python literal. */
function pythonValue(value: unknown): string {
  return jsonText(value).replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, word => {
    if (word.startsWith('"')) return word
    return word === 'null' ? 'None' : word === 'true' ? 'True' : 'False'
  })
}

function inJavaScript({ method, path, key, json, form, isStream, answer }: ExampleRequest): string {
  const url = `${READER_URL}${path}`
  const hasValues = path.includes('{')
  const location = hasValues ? `\`${url.replace(/\{(\w+)\}/g, `$\${${ENVIRONMENT}.$1}`)}\`` : `'${url}'`
  const headers: string[] = []
  if (key !== null) headers.push(`Authorization: \`Bearer \${${ENVIRONMENT}.${key}}\``)
  if (json !== undefined) headers.push("'Content-Type': 'application/json'")
  const lines: string[] = []
  if (method !== 'GET') lines.push(`  method: '${method}',`)
  if (headers.length > 0) lines.push(`  headers: { ${headers.join(', ')} },`)
  if (form !== null) lines.push('  body: form,')
  if (json !== undefined) lines.push(`  body: JSON.stringify(${indent(jsonText(json), '  ')}),`)
  const terms = lines.length === 0 ? '' : `, {\n${lines.join('\n')}\n}`
  const callText = isStream
    ? 'for await (const text of reply.body.pipeThrough(new TextDecoderStream())) process.stdout.write(text)'
    : {
        json: 'console.log(await reply.json())',
        text: 'console.log(await reply.text())',
        none: 'console.log(reply.status)',
      }[answer]
  return `${form === null ? '' : formInJavaScript(form)}const reply = await fetch(${location}${terms})\n${callText}`
}

function formInJavaScript(form: Fields): string {
  const parts = Object.entries(form).map(([name, value]) =>
    name === 'file'
      ? "form.set('file', new File([await readFile('notes.txt')], 'notes.txt'))"
      : `form.set('${name}', '${String(value)}')`,
  )
  return `import { readFile } from 'node:fs/promises'\n\nconst form = new FormData()\n${parts.join('\n')}\n`
}

function jsonText(value: unknown): string {
  const short = JSON.stringify(value)
  return short.length <= ONE_LINE_CHARS ? short : JSON.stringify(value, null, 2)
}

function indent(text: string, margin: string): string {
  return text.replaceAll('\n', `\n${margin}`)
}
