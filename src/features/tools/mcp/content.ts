/**
 * Converts the result of an MCP tool to text for the model. Pure. The server is untrusted: any field may have any
 * value.
 */

/** One more than pipeline/tool-calls/server-tools.ts passes on, so that it notices and marks the cut. */
const MAX_TEXT_CHARS = 200_001
const MAX_PARTS = 1_000

/** The content of a result as one text. Pictures and sounds are named, not shown. */
export function contentText({ content, structuredContent }: Readonly<Record<string, unknown>>): string {
  const texts: string[] = []
  let chars = 0
  for (const part of Array.isArray(content) ? content.slice(0, MAX_PARTS) : []) {
    const text = partText(part)
    texts.push(text)
    chars += text.length
    if (chars > MAX_TEXT_CHARS) break
  }
  const text = texts.join('\n')
  if (text !== '' || structuredContent == null) return text.slice(0, MAX_TEXT_CHARS).toWellFormed()
  return jsonText(structuredContent).slice(0, MAX_TEXT_CHARS).toWellFormed()
}

function partText(part: unknown): string {
  if (typeof part !== 'object' || part === null) return ''
  const { type, text, data, mimeType, resource, uri, name } = part as Record<string, unknown>
  switch (type) {
    case 'text':
      return typeof text === 'string' ? text : ''
    case 'image':
    case 'audio':
      return `[${type} of type ${oneLine(mimeType)}, ${base64Bytes(data)} bytes, not shown]`
    case 'resource':
      return resourceText(resource)
    case 'resource_link':
      return `[resource ${oneLine(name)}: ${oneLine(uri)}]`
    default:
      return '[content of an unknown type]'
  }
}

function resourceText(resource: unknown): string {
  if (typeof resource !== 'object' || resource === null) return ''
  const { uri, text, blob, mimeType } = resource as Record<string, unknown>
  if (typeof text === 'string') return `[resource ${oneLine(uri)}]\n${text}`
  return `[resource ${oneLine(uri)} of type ${oneLine(mimeType)}, ${base64Bytes(blob)} bytes, not shown]`
}

const MAX_LINE_CHARS = 500

/** A text in one line. */
function oneLine(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, MAX_LINE_CHARS).replace(/[\s\]]+/g, ' ') : 'unknown'
}

function base64Bytes(data: unknown): number {
  return typeof data === 'string' ? Math.floor((data.length * 3) / 4) : 0
}

function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch {
    // The value is nested too deeply.
    return '[content that cannot be shown]'
  }
}
