"""Tables: workbooks of spreadsheet programs, tables with results in further columns, parts held out."""
