from ablate.cli.app import main

main()
