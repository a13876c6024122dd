/** Writes small PDFs, both valid and broken. */

interface PdfParts {
  /** Text of each page; letters and digits. */
  readonly pages: readonly string[]
  /** More entries of the trailer, such as an encryption that needs a password. */
  readonly trailer?: string
  /** Instead of the content stream of the first page: its dictionary and bytes. */
  readonly stream?: { readonly dictionary: string; readonly bytes: Buffer }
  /** What the tree says of its children and their number, instead of the truth. */
  readonly tree?: string
}

/** A PDF 1.4 with one font and a cross-reference table. */
export function writePdf({ pages, trailer = '', stream, tree }: PdfParts): Uint8Array {
  const objects: Buffer[] = []
  const add = (body: string | Buffer) => {
    objects.push(Buffer.from(body))
    return objects.length
  }
  add('<< /Type /Catalog /Pages 2 0 R >>')
  const kids = pages.map((_, n) => `${4 + 2 * n} 0 R`).join(' ')
  add(`<< /Type /Pages ${tree ?? `/Kids [${kids}] /Count ${pages.length}`} >>`)
  add('<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>')
  for (const [n, text] of pages.entries()) {
    add(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents ${5 + 2 * n} 0 R >>`,
    )
    const lines = text.split('\n').map((line, row) => `BT /F1 12 Tf 72 ${700 - 20 * row} Td (${line}) Tj ET`)
    const own = n === 0 ? stream : undefined
    const bytes = own?.bytes ?? Buffer.from(lines.join('\n'))
    const head = `<< /Length ${bytes.length} ${own?.dictionary ?? ''} >>\nstream\n`
    add(Buffer.concat([Buffer.from(head), bytes, Buffer.from('\nendstream')]))
  }
  const chunks = [Buffer.from('%PDF-1.4\n%\xe2\xe3\xcf\xd3\n', 'latin1')]
  let at = chunks[0]?.length ?? 0
  const offsets = objects.map((body, n) => {
    const chunk = Buffer.concat([Buffer.from(`${n + 1} 0 obj\n`), body, Buffer.from('\nendobj\n')])
    const offset = at
    chunks.push(chunk)
    at += chunk.length
    return offset
  })
  const rows = offsets.map(offset => `${String(offset).padStart(10, '0')} 00000 n \n`).join('')
  chunks.push(
    Buffer.from(
      `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R ${trailer} >>\nstartxref\n${at}\n%%EOF\n`,
    ),
  )
  return new Uint8Array(Buffer.concat(chunks))
}

/** The trailer of a document that opens with a password only. */
export const ENCRYPTED = `/ID [<${'0'.repeat(32)}> <${'0'.repeat(32)}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <${'ab'.repeat(32)}> /U <${'cd'.repeat(32)}> >>`
