// A reporter for `node --test`: one line of JSON for each test, with its file (tests/client_suites.py reads it).
export default async function * lines (events) {
  for await (const { type, data } of events) {
    if (type === 'test:pass' || type === 'test:fail') {
      if (data.details?.type === 'suite') continue
      const result = type === 'test:pass' ? 'passed' : 'failed'
      const skip = data.skip !== undefined || data.todo !== undefined
      const error = String(data.details?.error?.cause?.message ?? data.details?.error?.message ?? '').slice(0, 1500)
      yield JSON.stringify({ file: data.file ?? '', name: data.name, result, skip, error }) + '\n'
    }
  }
}
