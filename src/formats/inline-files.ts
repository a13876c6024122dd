/**
 * Files inside a request, in the form that OpenAI's APIs take: a data URL with a name. Clients of other APIs leave out
 * the name, or send bare base64. Pure.
 */

/** The beginning of a PDF file (`%PDF`) in base64. */
export const PDF_START = 'JVBERi'

/** A PDF in bare base64 as a data URL; other data unchanged. */
export function dataUrlOf(data: string): string {
  return data.startsWith(PDF_START) ? `data:application/pdf;base64,${data}` : data
}

/** Endings that OpenAI knows, by media type; others are read as text. */
const FILE_EXTENSIONS: ReadonlyMap<string, string> = new Map([
  ['application/pdf', 'pdf'],
  ['application/json', 'json'],
  ['text/csv', 'csv'],
  ['text/html', 'html'],
  ['text/markdown', 'md'],
])

/** The name for a file without one. */
export function nameFor(data: string): string {
  const type = /^data:([\w.+-]+\/[\w.+-]+)/.exec(data.slice(0, 128))?.[1] ?? ''
  return `document.${FILE_EXTENSIONS.get(type) ?? 'txt'}`
}
